"""The exercises of chapter 07: spacing of numbers, an overflow found, the scaled step, a run rescued, a choice made.

All of them run on the CPU, on every machine: autocast and `torch.amp.GradScaler` work there as they do on a GPU, and a
few numbers are enough to show what half precision does to them.
"""

import contextlib
import copy
import linecache
import math
import sys
import warnings
from collections.abc import Callable, Iterable
from typing import Any
from unittest import mock

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.optim.optimizer import register_optimizer_step_pre_hook
from torch.utils._python_dispatch import TorchDispatchMode

from labcheck.answer import call, is_students
from labcheck.compare import equal
from labcheck.inputs import Inputs
from labcheck.probes import SLOW_START, plain_number, weights
from labcheck.show import show
from labcheck.verdict import AnswerRaised, Incorrect
from torchcourse_labs._spec import Asking, Mistake, Raised, Spec, changed, chapter, says  # noqa: F401 - for the tables

EXERCISES = ()  # declared below

exercise = chapter("07_mixed_precision")
HALF = (torch.float16, torch.bfloat16)
Row = dict[str, Any]
Table = dict[torch.dtype, Row]  # of measurements


# ---------------------------------------------------------------------------------------------------------------------
# What the judges below share


def linear(new: Inputs, inputs: int, outputs: int, size: float = 1.0) -> nn.Linear:
    """A linear layer on the CPU, its weights from the check's own generator."""
    layer = nn.Linear(inputs, outputs)
    with torch.no_grad():
        layer.weight.copy_(new.randn(outputs, inputs) * size / math.sqrt(inputs))
        layer.bias.copy_(new.randn(outputs) * size / 10)
    return layer


class FirstOverflow(TorchDispatchMode):
    """Finds the first operation that makes inf or nan out of finite numbers, and the line of the answer it is in."""

    def __init__(self) -> None:
        super().__init__()
        self.found: tuple[str, str, str] | None = None  # operation, dtype, line

    def __torch_dispatch__(self, function: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        out = function(*args, **(kwargs or {}))
        if self.found is None and _is_float(out) and not out.isfinite().all():
            finite = all(value.isfinite().all() for value in args if _is_float(value))
            if finite:
                name = function.overloadpacket.__name__.strip("_")
                self.found = name, _names([out.dtype]), _line_of_the_answer()
        return out


def _is_float(value: Any) -> bool:
    return isinstance(value, Tensor) and value.is_floating_point()


def _line_of_the_answer() -> str:
    frame = sys._getframe(1)
    while frame is not None and frame.f_code is not call.__code__:
        if is_students(frame.f_code.co_filename):
            text = linecache.getline(frame.f_code.co_filename, frame.f_lineno).strip()
            return f", line {frame.f_lineno}: `{text}`" if text else f", line {frame.f_lineno}"
        frame = frame.f_back
    return ""


# ---------------------------------------------------------------------------------------------------------------------
# Answers that the lab lends to students who have not solved the exercise yet


def borrowed_step(model, images, labels, optimizer, scaler, dtype, max_norm):
    """What `scaled_step` asks for."""
    with torch.autocast(images.device.type, dtype=dtype):
        loss = F.cross_entropy(model(images), labels)
    optimizer.zero_grad()
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    nn.utils.clip_grad_norm_(model.parameters(), max_norm)
    scaler.step(optimizer)
    scaler.update()
    return loss.item()


def borrowed_rescue(model: nn.Module, batches: list[tuple[Tensor, Tensor]], epochs: int) -> None:
    """What `rescue_fp16` asks for."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.25)
    scaler = torch.amp.GradScaler(batches[0][0].device.type)
    for x, y in batches * epochs:
        with torch.autocast(x.device.type, dtype=torch.float16):
            loss = F.mse_loss(model(x), y)
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()


def borrowed_choice(table: Table, memory: float) -> torch.dtype:
    """What `choose_dtype` asks for."""
    return _chosen(table, memory)


# ---------------------------------------------------------------------------------------------------------------------


def _values(new: Inputs) -> list[tuple]:
    cases = []
    for dtype in (torch.float32, torch.float16, torch.bfloat16):
        eps, between, off = torch.finfo(dtype).eps, 0.0, 0.0
        while not 0.1 < off < 0.4:  # of the gap: neither a number of the format nor halfway between two
            between = (1.1 + 0.35 * new.rand(1).item()) * 2.0 ** new.size(2, 9)
            off = abs(_stored(between, dtype).item() - between) / _spacing(between, dtype)
        power = 2.0 ** new.size(2, 6)
        almost = power * (1 - eps / 8)  # rounds up to the power of two
        below = power * (1 - eps / 2)  # the last number of the format before it
        values = between, 1 / between, power, 1 / power, -between, -power, almost, below
        cases += [(value, dtype) for value in values]
    return cases


def _stored(value, dtype):
    """The absolute value, as the format rounds it."""
    return torch.tensor(abs(value), dtype=dtype)


def _to_neighbor(value, dtype, towards):
    """The distance between the rounded value and its neighbor in this direction."""
    x = torch.tensor(value, dtype=dtype)
    return abs(torch.nextafter(x, torch.tensor(towards, dtype=dtype)).double() - x).item()


def _spacing(value, dtype):
    return _to_neighbor(abs(value), dtype, math.inf)


def _halved_while_it_moves(value, dtype):
    x, gap = _stored(value, dtype), 1.0
    while x + gap / 2 != x:
        gap /= 2
    return gap


def _farther_with_sign(value, dtype):
    x = torch.tensor(value, dtype=dtype)
    return abs(torch.nextafter(x, x * 2) - x)


exercise(
    "spacing_of",
    title="Mind the gap",
    minutes=5,
    difficulty=1,
    points=1,
    takeaway="eps is the gap at 1. It doubles with every power of two: from 2048 on, float16 has only even numbers.",
    hints=(
        "`torch.finfo(dtype).eps` is the gap after 1. How wide is it after 2, after 4, after 1000?",
        "`torch.nextafter(x, y)` gives the neighbor of x in the direction of y, for tensors in their own dtype. Which "
        "y is farther from zero than x, whatever its sign?",
        "`x = torch.tensor(abs(value), dtype=dtype)`, then the distance to `torch.nextafter(x, …)` with infinity in "
        "that dtype.",
    ),
    spec=Spec(
        draw=_values,
        solution=_spacing,
        dtype=False,  # a tensor or NumPy scalar with one number is fine
        rtol=1e-6,
        atol=0,
        by_case=True,
        look="the distance between the rounded value and its neighbor farther from zero",
        mistakes="""
            = math.copysign(_spacing(value, dtype), value)
            = -_spacing(value, dtype)
                Your distance is negative. A distance has no sign, even between negative numbers.
                look: `abs`
                when: math.isclose(-yours, expected, rel_tol=1e-6)
            = torch.finfo(dtype).eps * 2 ** _stored(value, dtype).log2().floor().item()
                You take the logarithm in {dtype}, where it is rounded: just below a power of two, your gap is twice too
                wide.
                look: `math.log2`, `.double()`, or no logarithm at all
            = torch.finfo(dtype).eps
                You return `torch.finfo(dtype).eps`, the gap between 1 and the next number. The gap doubles with each
                power of two.
            = _spacing(value, dtype) / 2
            = torch.finfo(dtype).eps / 2
                You return the largest rounding error, half a gap.
            _halved_while_it_moves
                You halve a change as long as it moves the number. Half a gap can still move it, because the sum is
                rounded to the neighbor; and where the gap is wider than your first change, you never get there.
                look: `torch.nextafter` finds the neighbor without guessing
            = torch.finfo(dtype).eps * abs(value)
            = torch.finfo(dtype).eps * _stored(value, dtype).item()
                You multiplied eps by the value. The gap stays the same from one power of two to the next, and doubles
                there.
                look: `2 ** floor(log2(…))`, or `torch.nextafter`
            = torch.finfo(dtype).resolution
                `resolution` is eps as a power of ten, for printing. It is not a gap.
            = torch.finfo(dtype).eps * 2 ** math.floor(math.log2(abs(value)))
            = _spacing(value, dtype) + _stored(value, dtype).item() - abs(value)
            = abs(_to_neighbor(value, dtype, math.inf) + torch.tensor(value, dtype=dtype).item() - value)
                The format does not have every value: {value!r} is rounded when it is stored. Round it first, and
                measure from there.
                look: `torch.tensor(value, dtype=dtype)` before everything else
            = _to_neighbor(value, dtype, 0.0)
                Your neighbor is on the side of zero. At a power of two, the gap on that side is half as wide.
                look: the direction of the neighbor
            = _to_neighbor(value, dtype, math.inf)
            = _to_neighbor(value, dtype, -math.inf)
                Your neighbor is always on the same side. Farther from zero is up for positive numbers, and down for
                negative ones.
                look: the direction of the neighbor
            = max(_spacing(value, dtype), torch.finfo(dtype).eps)
                Your gap is never smaller than eps. Below 1, the gap halves with each power of two.
                look: the exponent, which is negative there
            = _spacing(value, dtype) / (2 if dtype == torch.bfloat16 else 1)
            = _spacing(value, dtype) * (2 if dtype == torch.bfloat16 else 1)
                Your gap is right for float32 and float16, but not for bfloat16, which keeps 7 bits after the point.
                look: `torch.finfo(dtype).eps` knows the bits
            = abs(torch.tensor(value, dtype=dtype).item() - value)
                You return by how much {value:.8g} is rounded. The gap is the distance between two numbers of the
                format.
                look: `torch.nextafter`
            *(lambda value, dtype, one=one: _spacing(value, one) for one in (torch.float64, torch.float32, *HALF))
                You return the gap of the same format, whatever dtype comes in.
                look: `torch.tensor(value, dtype=dtype)`
            = torch.finfo(dtype).tiny
            = torch.finfo(dtype).tiny * torch.finfo(dtype).eps
                You return the smallest number above zero, not the gap at this value.
                look: `torch.nextafter`
            = _spacing(value, dtype) + _to_neighbor(value, dtype, 0.0)
                You return the distance between the two neighbors of the number: only the one farther from zero counts.
            = _spacing(value, dtype) / abs(value)
            = _spacing(value, dtype) / _stored(value, dtype).item()
                You return the gap as a share of the value. Return the gap itself.
            = float(_stored(value, dtype) * (1 + torch.finfo(dtype).eps) - _stored(value, dtype))
            = float(_stored(value, dtype) + torch.finfo(dtype).eps - _stored(value, dtype))
                You change the number a little and look how far it moves. Where the gap is wider than the change, it
                does not move, and where it is narrower, it moves by several gaps.
                look: `torch.nextafter` finds the neighbor without guessing
            = _stored(value, dtype) + 1e-30 - _stored(value, dtype)
                Your distance is zero: either what you added was rounded away, or the neighbor is the number itself.
                look: `torch.nextafter` finds the neighbor without guessing
                when: yours == 0
            = torch.tensor(value, dtype=dtype).item() + _spacing(value, dtype)
                You return a number of the format, or its neighbor, instead of the distance between the two.
                when: math.isclose(abs(yours), abs(value), rel_tol=0.01)
            *(lambda value, dtype, up=up: torch.finfo(dtype).eps * 2.0 ** up(math.log2(_stored(value, dtype)))
                    for up in (math.ceil, int, round))
            *(lambda value, dtype, up=up: torch.finfo(dtype).eps * 2.0 ** up(math.log2(abs(value)))
                    for up in (math.ceil, int))
                Your gap is twice too wide for some numbers: the exponent is rounded up.
                look: the exponent of the power of two at or below the number: `floor`, which also rounds negative
                    logarithms down
            = torch.finfo(dtype).eps * 2.0 ** math.frexp(torch.tensor(value, dtype=dtype).item())[1]
            = torch.finfo(dtype).eps * 2.0 ** math.frexp(value)[1]
                Your gap is twice as wide as it should be, even for 1, where it is eps: the exponent is one too large.
                look: the power of two at or below the number. The mantissa of `frexp` is below 1, so its exponent is
                    that of the power above
            = torch.finfo(dtype).eps * 2 ** torch.tensor(value, dtype=dtype).double().log2().floor()
            = torch.finfo(dtype).eps * 2 ** math.floor(math.log2(torch.tensor(value, dtype=dtype).item()))
                You take the logarithm of a negative number, {value:.8g}.
                look: `abs`
                when: says(yours, "math domain error", "expected a positive input") or math.isnan(yours)
        """,
        also_right=[
            lambda value, dtype: torch.finfo(dtype).eps * 2.0 ** math.floor(math.log2(_stored(value, dtype))),
            lambda value, dtype: np.float32(_spacing(value, dtype)),
            _farther_with_sign,
        ],
    ),
)


# ---------------------------------------------------------------------------------------------------------------------


class Calls(contextlib.ExitStack):
    """What happens to a model while this is open, in order, and in which dtypes its linear layers compute."""

    def __init__(self, model: nn.Module, scaler: torch.amp.GradScaler | None = None) -> None:
        super().__init__()
        self.model, self.scaler = model, scaler
        self.order: list[str] = []
        self.layers: list[torch.dtype] = []
        self.weights: list[torch.dtype] = []
        self.scaled: list[torch.dtype] = []
        self.gradients: list[Tensor] = []  # that the steps use, all parameters in one row
        self.rates: list[float] = []  # learning rates of these steps
        self.optimizer = "SGD"
        self.came: Tensor | None = None  # out of the last backward pass, for the first parameter
        self.as_they_came = True  # what the steps use
        self.through = False  # a scaled loss
        self.inside = False  # `scaler.step`, which calls other methods itself

    def __enter__(self) -> "Calls":
        super().__enter__()
        scaler = torch.amp.GradScaler
        for owner, name in (
            *((nn.utils, name) for name in ("clip_grad_norm_", "clip_grad_value_")),
            *((owner, "zero_grad") for owner in (nn.Module, torch.optim.Optimizer)),
            *((scaler, name) for name in ("scale", "unscale_", "step", "update")),
        ):
            self.enter_context(mock.patch.object(owner, name, self.noting(getattr(owner, name), name, owner is scaler)))
        hooks = [register_optimizer_step_pre_hook(self.step)]
        for layer in self.model.modules():
            if isinstance(layer, nn.Linear):
                # A function, not a method: a copy of the model copies its hooks, but not this object.
                hooks.append(layer.register_forward_hook(lambda *args: self.forward(*args)))
        first, arrived = next(self.model.parameters()), []

        def arrive(gradient: Tensor) -> None:  # also for torch.autograd.grad, which adds to nothing
            arrived.append(gradient.clone())
            self.came = arrived[-1]
            off = self.scaler is not None and not self.scaler.is_enabled()
            self.note("backward" if self.through or off else UNSCALED)

        def compare(p: Tensor) -> None:
            if arrived and not torch.allclose(p.grad, arrived.pop().to(p.grad.dtype), equal_nan=True):
                self.order[-1] = ADDED

        hooks += first.register_hook(arrive), first.register_post_accumulate_grad_hook(compare)
        for hook in hooks:
            self.callback(hook.remove)
        return self

    def note(self, word: str) -> None:
        if not self.inside:
            self.order.append(word)

    def noting(self, function: Callable, name: str, of_scaler: bool) -> Callable:
        """The function, which also notes that it was called."""

        def noting(*args: Any, **options: Any) -> Any:
            ours = self.scaler is None or not of_scaler or args[0] is self.scaler
            self.note(("" if ours else OTHER) + ("scaler.step" if name == "step" else name))
            if name == "scale" and isinstance(args[1], Tensor):
                self.scaled.append(args[1].dtype)
            self.inside, before = self.inside or name == "step", self.inside
            try:
                result = function(*args, **options)
            finally:
                self.inside = before
            if name == "scale" and isinstance(result, Tensor) and result.requires_grad:
                result.register_hook(lambda gradient: setattr(self, "through", True))
            return result

        return noting

    def forward(self, layer: nn.Module, given: Any, out: Tensor) -> None:
        self.layers.append(out.dtype)
        self.weights.append(layer.weight.dtype)

    def step(self, optimizer: torch.optim.Optimizer, *_: Any) -> None:
        self.note("optimizer.step")
        self.rates.append(optimizer.param_groups[0]["lr"])
        self.optimizer = type(optimizer).__name__
        grad = next(self.model.parameters()).grad
        self.as_they_came &= self.came is not None and grad is not None and torch.equal(grad, self.came.to(grad.dtype))
        if all(p.grad is not None for p in self.model.parameters()):
            self.gradients.append(torch.cat([p.grad.detach().flatten().float() for p in self.model.parameters()]))

    def call(self, answer: Callable, *args: Any) -> Any:
        """Call the answer, with copies of the data; an error that a scaler raises says what happened before."""
        given = [copy.deepcopy(value) if isinstance(value, list | Tensor) else value for value in args]
        try:
            result = call(answer, *given, may_change=True, may_return_none=True)
        except AnswerRaised as raised:
            if isinstance(raised.error, RuntimeError | AssertionError | ValueError) and self.order:
                text = str(raised.error).partition("\n")[0]
                raised.error.args = (f"{text} {HAPPENED}{' → '.join(self.order[-12:])}",)
                raise AnswerRaised(raised.error) from raised.error
            raise
        if any(isinstance(a, list | Tensor) and not equal(a, b) for a, b in zip(args, given, strict=True)):
            raise Incorrect(
                "Your function changes the data that it gets. The caller needs it as it was, for the next epoch at "
                "the latest.",
                look="methods that end in an underscore (`clamp_`), `+=`, assignments to elements",
            )
        return result


BACKWARDS = ADDED, UNSCALED, _ = "backward onto old gradients", "backward without scale", "backward"
OTHER, HAPPENED = "another scaler's ", "What happened: "


def _names(dtypes: Iterable[torch.dtype]) -> str:
    return ", ".join(sorted({str(dtype).removeprefix("torch.") for dtype in dtypes})) or "none"


def _order(yours: Any) -> list[str]:
    """The calls of the first step, or those before an error."""
    if isinstance(yours, Raised) and HAPPENED not in yours.message:
        raise ValueError("an error of another kind")
    text = yours.message.rpartition(HAPPENED)[2] if isinstance(yours, Raised) else yours["happened"]
    return text.split(" → ")


def _first(order: list[str], *names: str) -> int:
    """Where the first of these calls is; the end if there is none."""
    return min((order.index(name) for name in names if name in order), default=len(order))


def _cleared_late(order: list[str]) -> bool:
    """Tell whether gradients are cleared between the backward pass and the step."""
    return "zero_grad" in order[_first(order, *BACKWARDS) : _first(order, "scaler.step", "optimizer.step")]


def _network_and_images(new: Inputs) -> tuple:
    pixels, width, classes, count = new.size(6, 12), new.size(10, 16), new.size(4, 8), new.size(9, 14)
    encoder = nn.Sequential(nn.Flatten(), linear(new, pixels, width, size=700.0))
    nn.init.zeros_(encoder[1].bias)
    images = new.randn(count, 1, 1, pixels)
    images[::2] *= 5e-5  # dark ones: features that are made smaller in float16 have squares that become zero
    return encoder, linear(new, width, classes, size=2.0), images, new.ints(0, classes, (count,))


def _safe_loss(encoder, head, images, labels):
    with torch.autocast(images.device.type, dtype=torch.float16):
        features = encoder(images)
        power = features.float().square().mean(dim=1, keepdim=True)
        logits = head(features / power.sqrt())
    logits = logits.float()
    return F.cross_entropy(logits, labels) + 0.01 * logits.logsumexp(dim=1).square().mean()


def _watched_loss(answer: Callable, encoder: nn.Module, head: nn.Module, images: Tensor, labels: Tensor) -> dict:
    both = nn.ModuleList(copy.deepcopy((encoder, head)))
    watch = FirstOverflow()
    with Calls(both) as calls, watch:
        loss: Any = None
        try:
            loss = call(answer, *both, images.clone(), labels.clone(), may_change=True)
        except AnswerRaised:
            if {*calls.weights} <= {torch.float32}:
                raise  # if the weights are cast, that says more
    tensor = isinstance(loss, Tensor)
    seen = {
        "The dtype of the weights": _names([*calls.weights, *(p.dtype for p in both.parameters())]),
        "What you return": f"a tensor of shape {tuple(loss.shape)}" if tensor else show(loss),
        "The dtype of the layers": _names(calls.layers),
        "What overflows": watch.found[0] if watch.found else "nothing",
        "Encoder and head are called": len(calls.layers) > 1,
        "The loss has a graph": tensor and loss.requires_grad,
        "The dtype of the loss": _names([loss.dtype] if tensor else []),
        "The loss": loss.detach().float() if tensor and not loss.is_complex() else math.nan,
        "in": watch.found[1] if watch.found else "",
        "line": watch.found[2] if watch.found else "",
        "gradients": [],
    }
    if tensor and loss.requires_grad and loss.numel() == 1:
        (loss * 1024).backward()  # scaled, so that nothing underflows
        none = torch.tensor([math.nan])
        for model in both:
            gradients = [none if p.grad is None else p.grad.flatten().float() / 1024 for p in model.parameters()]
            seen["gradients"].append(torch.cat(gradients))
    return seen


def _measure_loss(ask: Asking, *inputs: Any) -> dict[str, Any]:
    seen = ask.observe(_watched_loss, *inputs)
    wanted = _watched_loss(_loss_in_float32, *inputs)["gradients"]
    pairs = zip(seen["gradients"], wanted, strict=False)
    near = [a.shape == b.shape and bool((a - b).norm() <= 0.05 * b.norm()) for a, b in pairs]
    return seen | {"The gradient is that of float32": near == [True, True]}


AUTOCAST_16 = "torch.autocast(images.device.type, dtype=torch.float16)"
_loss_in_float32 = changed(_safe_loss, (AUTOCAST_16, "torch.enable_grad()"))
POWER = "power = features.float().square().mean(dim=1, keepdim=True)"


exercise(
    "safe_loss",
    seconds=SLOW_START,
    title="One operation too many",
    minutes=8,
    difficulty=2,
    points=2,
    takeaway="Autocast knows many operations that need float32, but not all: check squares, sums, and means yourself.",
    hints=(
        "Which of the intermediate results can pass 65504, the largest number of float16? Print their `.max()`, line "
        "by line.",
        "Features of a few hundred are fine. Their squares are not. The cast has to come *before* the numbers become "
        "too large.",
        "In the line of `power`, write `features.float()` where `features` stood; leave all other lines alone.",
    ),
    spec=Spec(
        # Within one percent, two wrong losses may be equal by chance in one case.
        draw=lambda new: [_network_and_images(new) for _ in range(3)],
        measure=_measure_loss,
        solution=_safe_loss,
        by_case=True,
        rtol=1e-2,
        mistakes=r"""
            power = features.float().square().mean(dim=1, keepdim=True)
                    → power = (features.double().square()).mean(dim=1, keepdim=True)
                A float64 tensor meets float16 weights: autocast casts float32 and half precision, but leaves float64
                alone.
                look: `.float()` instead of `.double()`
                when: says(yours, "Double")
            features = encoder(images) → features = encoder.half()(images)
            features = encoder(images) → head.half(); features = encoder.half()(images.half())
                    && torch.autocast(images.device.type, dtype=torch.float16) → torch.enable_grad()
                You cast the weights of the model: a small update is rounded away there, and the caller finds the model
                changed. Leave them in float32, and let autocast cast copies where that pays off.
                look: `model.half()` or `model.to(…)`: autocast replaces it
                when: yours["The dtype of the weights"] != "float32"
            labels) + → labels).item() + && .square().mean() → .square().mean().item()
                Your loss should be one number in a tensor; you return {yours[What you return]}.
                when: yours["What you return"] != expected["What you return"]
            dtype=torch.float16 → dtype=torch.bfloat16
            , dtype=torch.float16 →
                The layers compute in bfloat16. It would not overflow, but it has fewer digits, and many GPUs lack it:
                the task here is float16.
                look: `dtype=torch.float16` of `torch.autocast`; the default on a CPU is bfloat16
                when: "bfloat16" in yours["The dtype of the layers"]
            features = encoder(images) → features = encoder(images) / 512
                    && power = features.float().square().mean(dim=1, keepdim=True)
                    → power = features.square().mean(dim=1, keepdim=True)
                You divide by zero: in {yours[in]}, the squares of small features are rounded to zero.
                look: compute squares in float32, which has room for large and small ones{yours[line]}
                when: yours["What overflows"] == "div" and yours["in"] != "float32"
            power = features.float().square().mean(dim=1, keepdim=True)
                    → power = ((features * features).float()).mean(dim=1, keepdim=True)
                    || with torch.autocast('cpu', enabled=False):\n            power = (features * features).mean(1,
                    keepdim=True)
                An operation overflows: `{yours[What overflows]}` in {yours[in]} turns finite numbers into inf. A cast
                after it comes too late, and switching autocast off casts nothing by itself.
                look: cast the input of that operation{yours[line]}
                when: yours["What overflows"] != "nothing" and yours["in"] != "float32"
            torch.autocast(images.device.type, dtype=torch.float16) → torch.enable_grad()
            images.device.type → 'cuda'
                The layers compute in float32: autocast is not there, is switched off, or is for another kind of device.
                look: `with {AUTOCAST_16}` around the forward pass
                when: yours["The dtype of the layers"] == "float32"
            features = encoder(images) → with torch.autocast('cpu', enabled=False): features = encoder(images)
                Some layers compute in float32: too much is outside autocast, or under `enabled=False`.
                look: what is between switching autocast off and on again
                when: yours["The dtype of the layers"] == "float16, float32"
            logits = head(features / power.sqrt()) → logits = features / power.sqrt()
                Encoder and head are both needed: the features go through the head.
                when: not yours["Encoder and head are called"]
            with torch.autocast(images.device.type, dtype=torch.float16)
                    → with torch.no_grad(), torch.autocast(images.device.type, dtype=torch.float16)
            logits = logits.float() → logits = logits.detach().float()
                Your loss has no graph: no `backward()` can start from it.
                look: `no_grad`, `detach`, `.item()`
                when: not yours["The loss has a graph"]
            logits = logits.float() → pass
            logits.float() → logits.double()
                Your loss is {yours[The dtype of the loss]}, and should be float32.
                look: `.float()` before the loss; or compute it inside the `with` block, in float32 by itself
                when: yours["The dtype of the loss"] != "float32"
            + 0.01 * logits.logsumexp(dim=1).square().mean() →
                The penalty is missing in your loss.
                look: the last two lines of `unsafe_loss`
            0.01 *  →
                You add the penalty in full. `unsafe_loss` adds a hundredth of it.
            square().mean(dim=1 → square().mean(dim=0
                You take the mean over the images. Each image has its own root mean square, over its features.
                look: `dim=1`
            square().mean(dim=1 → square().sum(dim=1
                You divide by the root of a sum. The root *mean* square needs the mean over the features.
            power.sqrt() → power
                You divide by the mean of the squares. The root is missing: `power.sqrt()`.
            features = encoder(images) → features = encoder(images).clamp(-250, 250)
            power = features.float().square().mean(dim=1, keepdim=True)
                    → power = features.float().square().mean(dim=1, keepdim=True).clamp(max=65504)
                    || power = features.float().square().mean(dim=1, keepdim=True) + 1
                Your loss is {yours[The loss]:.4g}; `unsafe_loss` in float32 gives {expected[The loss]:.4g}. Nothing
                overflows, so one of your lines computes something else.
                look: compare your lines with those of `unsafe_loss`: only casts may be new. `clamp`, `nan_to_num` and
                    an eps change the result
                when: not abs(yours["The loss"] / expected["The loss"] - 1) < 0.01
            power = features.float().square().mean(dim=1, keepdim=True)
                    → power = features.detach().float().square().mean(dim=1, keepdim=True)
                The loss is right, but its gradient is not that of the loss in float32: something clips numbers or cuts
                the graph.
                look: `detach` and `no_grad` cut the graph, `clamp` clips numbers; `.float()` does neither
                when: not yours["The gradient is that of float32"]
        """,
        also_right=[
            changed(_safe_loss, (POWER, f"with torch.autocast('cpu', enabled=False): {POWER}")),
            changed(_safe_loss, ("features.float()", "features"), ("encoder(images)", "encoder(images).float()")),
            changed(
                _safe_loss,
                (POWER, "power = torch.linalg.vector_norm(features, dim=1, keepdim=True, dtype=torch.float32) ** 2"),
                ("power.sqrt()", "(power / features.shape[1]).sqrt()"),
            ),
            changed(_safe_loss, ("    logits = logits.float()\n", ""), ("    return", "        return")),
        ],
    ),
)


# ---------------------------------------------------------------------------------------------------------------------


def _batches(new: Inputs) -> list[tuple]:
    """float16 with a scaler, where clipping matters; and bfloat16 without one, where it doesn't, and does."""
    pixels, classes = new.size(5, 9), new.size(3, 6)
    model = nn.Sequential(nn.Flatten(), linear(new, pixels, 10, 1.5), nn.ReLU(), linear(new, 10, classes, 1.5))
    batches = [(new.randn(n, 1, 1, pixels), new.ints(0, classes, (n,))) for n in new.sizes(5, 6, 14)]
    batches[2][0][0, 0, 0, 0] = 3e5  # float16 makes inf of it: this step has to be skipped
    F.cross_entropy(model(batches[0][0]), batches[0][1]).backward()
    length = nn.utils.get_total_norm([p.grad for p in model.parameters()]).item()
    few = [batches[0], batches[1], batches[3]]
    return [
        (model, batches, torch.float16, length / 4, 1 / length),
        (model, few, torch.bfloat16, length * 50, 0.3 / length),
        (model, few, torch.bfloat16, length / 4, 1 / length),
    ]


def _watched_steps(
    answer: Callable, model: nn.Module, batches: list, dtype: torch.dtype, most: float, lr: float
) -> dict:
    model = copy.deepcopy(model)
    for p in model.parameters():  # what a backward pass before may have left
        p.grad = torch.full_like(p, 0.5)
    optimizer, needed = torch.optim.SGD(model.parameters(), lr=lr), dtype == torch.float16
    scaler = torch.amp.GradScaler("cpu", init_scale=4096.0, growth_interval=2, enabled=needed)
    layers, in_weights, scaled, used, scales, losses, kinds = [], [], [], [], [], [], []
    happened = ""
    for images, labels in batches:
        with Calls(model, scaler) as calls:
            loss = calls.call(answer, model, images, labels, optimizer, scaler, dtype, most)
        happened = happened or " → ".join(calls.order)
        layers += calls.layers
        in_weights += [*calls.weights, *(p.dtype for p in model.parameters())]
        scaled += calls.scaled
        used.append(calls.gradients[-1] * lr if calls.gradients else torch.full_like(weights(model), math.nan).float())
        scales.append(scaler.get_scale())
        number = plain_number(loss)
        losses.append(math.nan if number is None else number)
        kinds.append("a tensor" if isinstance(loss, Tensor) else "None" if loss is None else "a number")
    return {
        "The dtype of the layers": _names(layers),
        "The dtype of the weights": _names(in_weights),
        "The dtype of the loss": _names(scaled) if needed else "float32",
        "The gradient that a step uses, times the learning rate,": torch.stack(used),
        "The list of scales": scales,
        "The list of weights after all steps": weights(model),
        "The type of what you return": ", ".join(sorted({*kinds})),
        "The list of losses that you return": torch.tensor(losses),
        "happened": happened,
        "used": used,
        "steps": [each.isfinite().all().item() for each in used],
    }


def _measure_steps(ask: Asking, model: nn.Module, batches: list, dtype: torch.dtype, max_norm: float, lr: float) -> Row:
    return ask.observe(_watched_steps, model, batches, dtype, max_norm, lr)


def _other_length(yours: Tensor, expected: Tensor) -> bool:
    """Tell whether a gradient has the right direction, but another length."""
    same = torch.cosine_similarity(yours, expected, dim=0) > 0.999
    return bool(same) and not torch.isclose(yours.norm(), expected.norm(), rtol=0.05)


def _step_by_hand(model, images, labels, optimizer, scaler, dtype, max_norm):
    with torch.autocast(images.device.type, dtype=dtype):
        logits = model(images)
    loss = F.cross_entropy(logits.float(), labels)
    model.zero_grad()
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    norm = torch.stack([p.grad.norm() for p in model.parameters()]).norm()
    for p in model.parameters():
        p.grad *= (max_norm / norm).clamp(max=1)
    scaler.step(optimizer)
    scaler.update()
    return float(loss.detach())


exercise(
    "scaled_step",
    seconds=SLOW_START,
    title="The step in the right order",
    minutes=10,
    difficulty=3,
    points=3,
    takeaway="Scale, backward, unscale_, clip, step, update: nothing may look at the gradients before they are "
    "unscaled.",
    hints=(
        "Forward pass and loss are inside autocast. Everything after them goes through the scaler, and the "
        "clipping has to see gradients without the scale.",
        "`scaler.scale(loss).backward()`, `scaler.unscale_(optimizer)`, clip, then two more calls of the scaler: one "
        "steps, one changes the scale.",
        "`nn.utils.clip_grad_norm_(model.parameters(), max_norm)`, `scaler.step(optimizer)`, `scaler.update()`; clear "
        "old gradients before the backward pass; return `loss.item()`.",
    ),
    spec=Spec(
        draw=_batches,
        measure=_measure_steps,
        solution=borrowed_step,
        by_case=True,
        dtype=False,
        rtol=1e-2,
        atol=2e-3,
        mistakes=r"""
            loss = F.cross_entropy(model(images), labels)
                    → loss = F.cross_entropy(model.to(dtype)(images.to(dtype)), labels)
                    || loss = F.cross_entropy(model.half()(images), labels)
                You cast the weights of the model to half precision: there, small updates are rounded away. Leave them
                in float32, and let autocast cast copies where that pays off.
                look: `model.half()` or `model.to(…)`: autocast replaces it
                when: says(yours, "unscale FP16 gradients") or yours["The dtype of the weights"] != "float32"
            with torch.autocast(images.device.type, dtype=dtype) → if True
                The layers compute in float32: autocast is not on during the forward pass.
                look: `with torch.autocast(images.device.type, dtype=dtype)` around the forward pass
                when: yours["The dtype of the layers"] == "float32"
            return loss.item() → return F.cross_entropy(model(images), labels).item()
                Some layers compute in float32: the model runs outside autocast as well. One forward pass is enough, and
                its loss is the one to return.
                look: each call of `model`
                when: ", float32" in yours["The dtype of the layers"]
            type, dtype=dtype → type || type, dtype=torch.float16
                The layers compute in {yours[The dtype of the layers]}, but the argument `dtype` says {expected[The
                dtype of the layers]}.
                look: `dtype=dtype` of `torch.autocast`
                when: yours["The dtype of the layers"] != expected["The dtype of the layers"]
            scaler.unscale_(optimizer) → scaler.unscale_(optimizer); scaler.unscale_(optimizer)
            scaler.step(optimizer) → scaler.step(optimizer); scaler.step(optimizer)
            scaler.update() → scaler.update(); scaler.update()
                For one batch, you call `unscale_`, `step` or `update` of the scaler more than once.
                when: any(_order(yours).count(name) > 1 for name in ("unscale_", "scaler.step", "update"))
            scaler.unscale_(optimizer) → pass && scaler.update() → scaler.unscale_(optimizer)
                You unscale after the step: clipping there changes gradients that the step has already used.
                look: `unscale_` and the clipping come before `scaler.step`
                when: says(yours, "called after step()") and "scaler.step" in _order(yours)
            optimizer.zero_grad() → pass
                    && scaler.scale(loss).backward() → scaler.scale(loss).backward()\n    optimizer.zero_grad()
                You clear the gradients between backward and step: nothing is left for the step to use.
                look: `optimizer.zero_grad()` before the backward pass, or after the step
                when: _cleared_late(_order(yours))
            optimizer.zero_grad() → optimizer.zero_grad(); scaler = torch.amp.GradScaler('cpu')
                You use a different scaler than the one you get. A new one in each step forgets its scale.
                look: `GradScaler(…)` in your function
                when: any(name.startswith(OTHER) for name in _order(yours))
            optimizer.zero_grad() → pass
                Old gradients are still there: `backward()` adds to them, and they were not even scaled.
                look: `optimizer.zero_grad()` before each backward pass
                when: ADDED in _order(yours)
            scaler.step(optimizer) → optimizer.step() || scaler.step(optimizer); optimizer.step()
                You call `optimizer.step()` yourself. It steps even if gradients are infinite, and then the weights are
                lost.
                look: `scaler.step(optimizer)` looks at the gradients first, then steps or skips
                when: "optimizer.step" in _order(yours) and (dtype == torch.float16 or "scaler.step" in _order(yours))
            scaler.scale(loss).backward() → scaler.scale(loss)
            loss = F.cross_entropy(model(images), labels) → loss = F.cross_entropy(copy.deepcopy(model)(images), labels)
                No gradient ever reaches the model.
                look: `backward()`; the model that you get, not a copy of it
                when: not {*BACKWARDS} & {*_order(yours)}
            scaler.scale(loss).backward() → scaler.scale(loss); loss.backward() || loss.backward()
                The backward pass starts from a loss that is not scaled: in float16, small gradients become zero.
                look: `scaler.scale(loss).backward()`
                when: says(yours, "_scale is None") or UNSCALED in _order(yours)
            scaler.step(optimizer) → pass || scaler.is_enabled() and scaler.step(optimizer)
                The optimizer takes no step. A scaler that is switched off doesn't scale, but its `step` still steps.
                look: `scaler.step(optimizer)`, with and without scaling
                when: not isinstance(yours, Raised) and not {"scaler.step", "optimizer.step"} & {*_order(yours)}
            scaler.update() → pass
            scaler.step(optimizer) → pass && scaler.update() → scaler.update()\n    scaler.step(optimizer)
                `scaler.update()` does not follow each step: the scale cannot change, and the scaler refuses the next
                step.
                look: `scaler.update()` after `scaler.step(optimizer)`
                when: says(yours, "has already been called", "called after step()") or "update" not in _order(yours)
            loss = F.cross_entropy(model(images), labels) → logits = model(images)
                    && optimizer.zero_grad() → optimizer.zero_grad()\n    loss = F.cross_entropy(logits, labels)
                The loss is {yours[The dtype of the loss]}: you compute it outside autocast, from logits in half
                precision. Multiplied by the scale, it may overflow.
                look: the line of the loss belongs inside the `with` block
                when: yours["The dtype of the loss"] not in ("float32", "none")
            scaler.unscale_(optimizer) → pass || [p.grad.div_(scaler.get_scale()) for p in model.parameters()]
                The scaler divides the gradients by the scale after you have clipped them, and nearly nothing is left.
                look: `scaler.unscale_(optimizer)` before the clipping: the scaler remembers that call
                when: yours["used"][0].norm() < 0.02 * expected["used"][0].norm()
            nn.utils.clip_grad_norm_(model.parameters(), max_norm) → pass
                The gradients are not clipped when the step uses them.
                look: clip after `unscale_` and before `scaler.step`
            nn.utils.clip → scaler.is_enabled() and nn.utils.clip
                In bfloat16, your gradients are not clipped. Only the scale is not needed there.
                look: what your function does when the scaler is off
            clip_grad_norm_ → clip_grad_value_
            nn.utils.clip_grad_norm_(model.parameters(), max_norm)
                    → [nn.utils.clip_grad_norm_(p, max_norm) for p in model.parameters()]
                You clip each value or parameter on its own. Clip the length of all gradients together, so that their
                direction stays.
                look: `nn.utils.clip_grad_norm_(model.parameters(), max_norm)`
            nn.utils.clip_grad_norm_(model.parameters(), max_norm)
                    → norm = nn.utils.get_total_norm([p.grad for p in model.parameters()])\n    [p.grad.mul_(max_norm /
                    norm) for p in model.parameters()]
                You make short gradients longer. Clipping only shortens those that are longer than max_norm.
                look: `nn.utils.clip_grad_norm_`, or a factor of at most 1
            (), max_norm) → (), 1.0) || (), max_norm, norm_type=1)
                You clip the gradients to another Euclidean length than `max_norm`.
                look: the arguments of `nn.utils.clip_grad_norm_`; its `norm_type` stays 2
                when: _other_length(yours["used"][0], expected["used"][0])
            loss.item() → loss.item() / scaler.get_scale()
                You divide the loss by the scale, but `loss` was never multiplied by it: `scaler.scale` returns a new
                tensor.
            optimizer.zero_grad() → if not loss.isfinite(): return loss.item()\n    optimizer.zero_grad()
                A batch that overflows does not shrink the scale: the scaler never sees it.
                look: a `return` before `scaler.step` and `scaler.update`
                when: dtype == torch.float16 and not yours["steps"][2] and yours["The list of scales"][2] >= yours["The
                    list of scales"][1]
            loss.item() → scaler.get_scale() * loss.item()
                You return the scaled loss, which jumps whenever the scale changes.
                look: keep the loss under its own name: `scaler.scale(loss).backward()`
                when: (yours["The list of losses that you return"] > 500 * expected["The list of losses that you
                    return"])[[0, 1, 3]].all()
            return loss.item() → return loss || loss.item()
                You return {yours[The type of what you return]}. Return the loss as a Python number.
                look: `return`; `.item()` takes the number out of a tensor
                when: yours["The type of what you return"] != "a number"
            return loss.item()
                    → with torch.autocast(images.device.type, dtype=dtype):\n        return
                    F.cross_entropy(model(images), labels).item()
                You return the loss after the step. Return the one before it.
            labels) → labels, reduction='sum')
            loss.item() → loss.item() * len(images)
                Your loss is the sum over the batch, not the mean.
            model(images) → model(images).softmax(1)
                You apply softmax twice: `F.cross_entropy` takes logits and has its own softmax.
            scaler.unscale_(optimizer)
                    → [p.grad.nan_to_num_(0, 0, 0) for p in model.parameters()]; scaler.unscale_(optimizer)
                A batch with infinite gradients changed the weights: that step has to be skipped.
                look: `scaler.step(optimizer)` skips it by itself, unless something hides inf and nan from it
                when: dtype == torch.float16 and yours["steps"][2]
            optimizer.zero_grad() → optimizer = torch.optim.SGD(model.parameters(), lr=0.001); optimizer.zero_grad()
                The weights do not change as the optimizer that you get would change them.
                look: use the optimizer and the model that you get, once in each step. What happened: {yours[happened]}.
                when: torch.allclose(yours["The list of losses that you return"][0], expected["The list of losses that
                    you return"][0], 0.01) and yours["The list of scales"] == expected["The list of scales"]
        """,
        also_right=[
            _step_by_hand,
            changed(  # backward inside autocast, where it is not needed, and harmless
                borrowed_step,
                ("    optimizer.zero", "        optimizer.zero"),
                ("    scaler.scale", "        scaler.scale"),
                ("scaler.update()", "scaler.update()\n    optimizer.zero_grad()"),
            ),
            changed(  # no scaler if it is switched off
                borrowed_step,
                ("scaler.scale(loss)", "(scaler.scale(loss) if scaler.is_enabled() else loss)"),
                ("scaler.step(optimizer)", "scaler.step(optimizer) if scaler.is_enabled() else optimizer.step()"),
            ),
            changed(  # gradients that are asked for
                borrowed_step,
                ("optimizer.zero_grad()", "parameters = [*model.parameters()]"),
                ("scaler.scale(loss).backward()", "gradients = torch.autograd.grad(scaler.scale(loss), parameters)"),
                ("scaler.unscale_", "for p, each in zip(parameters, gradients): p.grad = each\n    scaler.unscale_"),
            ),
        ],
    ),
)


# ---------------------------------------------------------------------------------------------------------------------


def _sensors(new: Inputs) -> list[tuple]:
    features, rows, count = new.size(5, 8), 2000, 8
    slopes = 2e-5 * new.randn(features) + 2e-5
    batches = []
    for _ in range(count):
        x = new.randn(rows, features)
        batches.append((x, (x @ slopes + 1e-5).unsqueeze(1)))
    batches[new.size(3, count - 2)][0][new.size(0, rows - 1), 0] = 1e6  # the sensor's slip: inf in float16
    model = nn.Sequential(linear(new, features, 1))
    with torch.no_grad():
        model[0].weight.copy_(1.5 + new.rand(1, features))
        model[0].bias.fill_(1.0)
    return [(model, batches, new.size(5, 6))]


def _watched_run(answer: Callable, model: nn.Module, batches: list, epochs: int) -> dict:
    model = copy.deepcopy(model)
    with warnings.catch_warnings(record=True) as warned, Calls(model) as calls:
        warnings.simplefilter("always")
        calls.call(answer, model, batches, epochs)
    return {
        "The dtype of the layers": _names(calls.layers),
        "The dtype of the weights": _names([*calls.weights, *(p.dtype for p in model.parameters())]),
        "loss": _names(calls.scaled),
        "weights": weights(model),
        "passes": len(calls.layers),
        "steps": len(calls.rates),
        "rate": calls.rates[0] if calls.rates else 0.25,
        "optimizer": calls.optimizer,
        "disabled": any("GradScaler is enabled, but" in str(w.message) for w in warned),
        "happened": " → ".join(calls.order[:40]),
        "largest": max((float(each.abs().max()) for each in calls.gradients), default=0.0),
        "last gradient": float(calls.gradients[-1].abs().max()) if calls.gradients else 0.0,
        "unscaled": UNSCALED in calls.order and calls.as_they_came,
    }


def _measure_run(ask: Asking, model: nn.Module, batches: list[tuple[Tensor, Tensor]], epochs: int) -> dict:
    seen = ask.observe(_watched_run, model, batches, epochs)
    x, y = (torch.cat(parts) for parts in zip(*batches[:2], strict=True))  # without the slip
    # What came back may be anything, so that it is only used as numbers.
    slopes, intercept = seen["weights"].double()[:-1], seen["weights"].double()[-1]
    predicted, target = x.double() @ slopes + intercept, y[:, 0].double()
    left = (predicted - target).square().mean() / target.var()
    times = ((predicted @ target) / (target @ target)).item()
    close = (predicted / times - target).square().mean() / target.var() < 0.01
    return seen | {
        "The share of the variance that is left": left.item(),
        "Training on most batches": seen["passes"] >= len(batches) - 1,
        "moved": not torch.equal(seen["weights"].double(), weights(model)),
        "times": times,
        "another unit": bool(close) and not 0.8 < times < 1.25,
        "wanted": epochs * len(batches),
    }


def _rescued_by_hand(model, batches, epochs):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.25)
    for x, y in batches * epochs:
        with torch.autocast("cpu", dtype=torch.float16):
            loss = F.mse_loss(model(x), y)
        optimizer.zero_grad()
        (loss * 1024).backward()
        for p in model.parameters():
            p.grad.div_(1024)
        if all(p.grad.isfinite().all() for p in model.parameters()):
            optimizer.step()


LEFT = "The share of the variance that is left"
exercise(
    "rescue_fp16",
    seconds=SLOW_START,
    title="Rescue a run",
    minutes=12,
    difficulty=4,
    points=4,
    takeaway="Weights in float32, layers in float16, a scale that finds its own size: it takes all three.",
    hints=(
        "Three things go wrong in the script: the weights are float16, gradients of small errors become zero, and"
        " a batch that overflows destroys everything. Which tool helps with which?",
        "Autocast leaves the weights in float32. `torch.amp.GradScaler` lifts small gradients and skips a step whose "
        "gradients are infinite. Create it once, before the loops.",
        "`scaler = torch.amp.GradScaler(device)` with the device's type, then in the loop "
        "`scaler.scale(loss).backward()`, `scaler.step(optimizer)`, `scaler.update()`.",
    ),
    spec=Spec(
        draw=_sensors,
        measure=_measure_run,
        solution=borrowed_rescue,
        atol=3e-3,  # of the variance; the solution ends thousands of times below
        mistakes=r"""
            loss = F.mse_loss(model(x), y) → loss = F.mse_loss(model.half()(x.half()), y.half())
            changed(_rescued_by_hand, ("F.mse_loss(model(x), y)", "F.mse_loss(model.half()(x.half()), y.half())"))
                The weights are float16, because you cast the model: there, small updates are rounded away. Leave it in
                float32, and let autocast cast copies where that pays off.
                look: `model.half()` or `model.to(…)`
                when: says(yours, "unscale FP16 gradients") or yours["The dtype of the weights"] != "float32"
            scaler.step( → scaler.unscale_(optimizer); scaler.unscale_(optimizer); scaler.step(
            scaler.step(optimizer) → scaler.step(optimizer); scaler.step(optimizer)
            scaler.update() → pass
                The scaler refuses a second step, or a second `unscale_`, because it was not updated after the first.
                look: `scaler.update()` after each `scaler.step(optimizer)`, and each of them once for each batch
                when: says(yours, "has already been called", "called after step()")
            scaler.step(optimizer) → optimizer.step()
            scaler.step(optimizer) → optimizer.step() && scaler.update() → pass
                You call `optimizer.step()` yourself, so the scaler cannot skip a step whose gradients are infinite.
                look: `scaler.step(optimizer)`
                when: {"scale", "optimizer.step"} <= {*_order(yours)}
            scaler.step(optimizer) → pass
            scaler.step(optimizer) → pass && scaler.update() → pass
                Your scaler takes no step: `scaler.step(optimizer)` is missing.
                when: not {"scaler.step", "optimizer.step"} & {*_order(yours)} and "backward" in _order(yours)
            dtype=torch.float16 → dtype=torch.bfloat16
            with torch.autocast(x.device.type, dtype=torch.float16) → if True
                The layers compute in {yours[The dtype of the layers]}. That is one way out, but here they must stay in
                float16.
                look: `torch.autocast(x.device.type, dtype=torch.float16)` around the forward pass
                when: yours["The dtype of the layers"] not in ("float16", "none")
            optimizer.zero_grad() → pass
                You never clear old gradients: each backward pass adds to them.
                look: `optimizer.zero_grad()` before each backward pass
                when: ADDED in _order(yours)
            torch.amp.GradScaler(batches[0][0].device.type) → torch.amp.GradScaler()
                Your scaler is for CUDA and has switched itself off with a warning: nothing is scaled or skipped.
                look: the first argument of `torch.amp.GradScaler` is the type of the device
                when: yours["disabled"]
            scaler.scale(loss) → loss && scaler.step(optimizer) → optimizer.step() && scaler.update() → pass
                The weights are nan: a batch that overflows float16 has infinite gradients, and the step used them.
                look: `scaler.step(optimizer)` skips such a step; `optimizer.step()` does not
                when: not yours["weights"].isfinite().all()
            batches * epochs → batches || batches[:2]
                Your run ends too early: the model runs {yours[passes]} times, but there are {yours[wanted]} batches.
                look: two loops, over epochs and batches; is there a `return` or a `break` inside?
                when: 0 < yours["passes"] < 0.8 * yours["wanted"]
            optimizer = torch → model = copy.deepcopy(model)\n    optimizer = torch
                Your steps change the weights of a copy. Train the model that you get.
                look: `copy.deepcopy`
                when: yours["steps"] and not yours["moved"]
            with torch → scaler = torch.amp.GradScaler(batches[0][0].device.type)\n        with torch
                The scaler skips every step. Its scale starts large and is halved after each overflow, but here it never
                shrinks.
                look: make the scaler once, before the loops, and call `scaler.update()` after each step
                when: "scaler.step" in _order(yours) and not yours["moved"]
            changed(_rescued_by_hand, ("loss * 1024", "loss * 2**15"), ("div_(1024)", "div_(2**15)"))
                No step is ever taken: with your scale, the gradients are infinite in every batch.
                look: begin with a smaller scale, or halve it after each overflow
                when: not yours["moved"] and "backward" in " ".join(_order(yours))
            scaler.step( → nn.utils.clip_grad_norm_(model.parameters(), 1.0); scaler.step(
                You clip gradients that are still multiplied by the scale: divided by it, nearly nothing is left.
                look: no clipping is needed here; where it is, `scaler.unscale_(optimizer)` comes before it
                when: "clip_grad_norm_" in _order(yours) and "unscale_" not in _order(yours)
            lr=0.25 → lr=1e-4
            torch.optim.SGD → torch.optim.Adam
                With {yours[optimizer]} and a learning rate of {yours[rate]}, the run does not get close. In the script
                they are SGD and 0.25.
                when: (yours["optimizer"], yours["rate"]) != ("SGD", 0.25)
            loss = F.mse_loss(model(x), y) → prediction = model(x)
                    && optimizer.zero → loss = F.mse_loss(prediction, y.half())\n        optimizer.zero
                The loss is {yours[loss]}: too coarse for the last digits. Compute it in float32.
                look: inside the `with` block, autocast computes the loss in float32
                when: yours["loss"] not in ("none", "float32")
            torch.amp.GradScaler(batches[0][0].device.type) → torch.amp.GradScaler('cpu', init_scale=1.0)
            scaler.scale(loss) → loss && scaler.step(optimizer) → optimizer.step() if loss.isfinite() else None
                    && scaler.update() → pass
                The run gets close and then stops improving: the gradients of small errors are zero in float16.
                look: scale the loss before `backward()`, and let the scaler start with a large scale
                when: yours[LEFT] < 1e6 and yours["moved"] and (yours["unscaled"] or not yours["last gradient"])
            scaler.step → [p.grad.nan_to_num_() for p in model.parameters()]\n        scaler.step
                Every batch moves the weights, even the one whose gradients are infinite. A finite number in their place
                is still a wrong gradient: skip this step.
                look: `nan_to_num`, `clamp`; `scaler.step(optimizer)` skips such a step by itself
                when: yours["steps"] == yours["wanted"] and yours["largest"] > 1e4
            F.mse_loss(model(x), y) → F.mse_loss(model(x), 1000 * y)
                What your model predicts is {yours[times]:.3g} times the targets: it learned them in another unit.
                look: the model that you leave behind has to predict `y` itself
                when: yours["another unit"]
            scaler.scale(loss) → scaler.scale(loss * 1e-3)
                After the run, {yours[The share of the variance that is left]:.3g} of the variance of the targets is
                left. Less than 0.003 is possible.
                look: is every gradient without the scale when the step uses it? Learning rate, loss and batches may
                    stay as in the script
                when: math.isfinite(yours[LEFT])
        """,
        also_right=[
            _rescued_by_hand,
            changed(  # another scale, and the loss outside autocast
                borrowed_rescue,
                ("torch.amp.GradScaler(batches[0][0].device.type)", "torch.amp.GradScaler('cpu', init_scale=256.0)"),
                ("loss = F.mse_loss(model(x), y)", "prediction = model(x)"),
                ("optimizer.zero_grad()", "optimizer.zero_grad(); loss = F.mse_loss(prediction.float(), y)"),
                ("scaler.step", "scaler.unscale_(optimizer); scaler.step"),
            ),
        ],
    ),
)


# ---------------------------------------------------------------------------------------------------------------------


def _tables(new: Inputs) -> list[tuple[Table, int]]:
    base, mib = float(new.size(2000, 9000)), 2 * new.size(300, 900)
    good = 0.9 + new.rand(1).item() / 20

    def row(speeds: tuple[float, float], accuracies: tuple[float, float], share: float) -> Row:
        return {
            "speed": tuple(round(base * speed, 1) for speed in speeds),
            "accuracy": tuple(round(good + accuracy / 1000, 5) for accuracy in accuracies),
            "mib": int(mib * share),
        }

    def table(*rows: Row) -> Table:
        """float32 and the others, in any order."""
        full, halves = row((0.95, 1.05), (-3, 3), 1.0), [HALF[i] for i in new.permutation(2).tolist()]
        found = [(torch.float32, full), *zip(halves, rows, strict=False)]
        return {found[i][0]: found[i][1] for i in new.permutation(len(found)).tolist()}

    enough, alike = 2 * mib, (-3, 3)
    cases = [
        (table(), enough),
        (table(row((0.1, 0.12), (-2, 2), 0.6)), enough),  # far slower
        (table(row((1.6, 1.8), (-2, 4), 0.6)), enough),  # pays
        (table(row((1.6, 1.8), (-5, 0.5), 0.6)), enough),  # the ranges of accuracy overlap
        (table(row((1.6, 1.8), (-5, -1), 0.6)), enough),
        (table(row((1.0, 1.4), alike, 0.6)), enough),  # the ranges of speed overlap
        (table(row((0.98, 1.02), alike, 0.6)), enough),  # ... one in the other
        (table(row((1.02, 1.3), alike, 0.6)), enough),
        (table(row((1.05, 1.4), alike, 0.6)), enough),  # ... touch
        (table(row((1.6, 1.8), (-6, -3), 0.6)), enough),  # the ranges of accuracy touch
        (table(row((1.6, 1.8), (-12, -5), 0.6)), enough),  # less accurate
        (table(row((1.6, 1.8), (5, 9), 0.6)), enough),  # more accurate
        (table(row((1.6, 1.8), alike, 1.3)), int(mib * 1.1)),  # needs more memory than float32, and than there is
        (table(row((1.6, 1.8), alike, 1.3)), int(mib * 1.3)),  # ... and exactly as much as there is
        (table(row((2.0, 2.2), alike, 0.7), row((1.5, 1.7), alike, 0.55)), int(mib * 0.6)),  # the faster doesn't fit
        (table(row((0.5, 0.6), alike, 0.6)), int(mib * 0.8)),  # slower, and float32 doesn't fit
        (table(row((0.5, 0.6), alike, 0.6)), mib),  # ... fits exactly
        (table(row((0.7, 0.8), (-12, -5), 0.5), row((0.5, 0.6), alike, 0.6)), int(mib * 0.8)),
        (table(row((2.2, 2.4), (-30, -20), 0.6), row((1.2, 1.5), alike, 0.6)), enough),
        (table(row((1.3, 1.4), (-2, 2), 0.6), row((0.1, 0.2), alike, 0.6)), enough),
    ]
    # Both pay. Which one is better says its slowest run, not its fastest, memory, accuracy, name or place.
    for better in range(16):
        high, small, accurate, first = (bool(better >> bit & 1) for bit in range(4))
        good_row = row((1.7, 2.6 if high else 1.9), (-2, 4 if accurate else 1), 0.6 if small else 0.7)
        other = row((1.5, 2.2), (-2, 2), 0.65)
        names = torch.float16, torch.bfloat16, torch.float32
        full = row((0.95, 1.05), alike, 1.0)
        rows = dict(zip(names, (good_row, other, full) if first else (other, good_row, full), strict=True))
        order = [names[i] for i in new.permutation(3).tolist()]
        cases.append(({dtype: rows[dtype] for dtype in order}, enough if better % 3 else int(mib * 0.8)))
    return cases


def _chosen(
    table: Table,
    memory: float,
    fits: Callable = lambda need, memory: need <= memory,
    accurate: Callable = lambda mine, full: mine[1] >= full[0],
    faster: Callable = lambda mine, full: mine[0] > full[1],
    replaces: bool = True,  # a float32 that doesn't fit
    worth: Callable = lambda row: row["speed"][0],
) -> torch.dtype:
    full = table[torch.float32]
    needed = replaces and not fits(full["mib"], memory)
    possible = [
        dtype
        for dtype, row in table.items()
        if dtype != torch.float32
        and fits(row["mib"], memory)
        and accurate(row["accuracy"], full["accuracy"])
        and (needed or faster(row["speed"], full["speed"]))
    ]
    return max(possible, key=lambda dtype: worth(table[dtype]), default=torch.float32)


def _choice(**rules: Any) -> Callable:
    """A choice by other rules."""
    return lambda table, memory: _chosen(table, memory, **rules)


def _by_loop(table, memory):
    chosen = torch.float32
    for dtype in table:
        if dtype is torch.float32 or table[dtype]["mib"] > memory:
            continue
        if table[dtype]["accuracy"][1] < table[torch.float32]["accuracy"][0]:
            continue
        if table[torch.float32]["mib"] <= memory and table[dtype]["speed"][0] <= table[torch.float32]["speed"][1]:
            continue
        if chosen is torch.float32 or table[dtype]["speed"][0] > table[chosen]["speed"][0]:
            chosen = dtype
    return chosen


exercise(
    "choose_dtype",
    title="Does it pay off here?",
    minutes=6,
    difficulty=2,
    points=2,
    takeaway="The machine decides, not a rule of thumb: measure, look at the ranges, and switch only where they don't "
    "overlap.",
    hints=(
        "First cross out what doesn't fit, and what is less accurate than float32. Then compare what is left.",
        "Of two ranges (a, b) and (c, d), the second lies entirely above the first when c > b.",
        "`pays = [d for d in table if fits(d) and not worse(d) and (table[d]['speed'][0] > table[torch.float32]"
        "['speed'][1] or not fits(torch.float32))]`; float32 itself only if that list is empty.",
    ),
    spec=Spec(
        draw=_tables,
        solution=borrowed_choice,
        mistakes="""
            _choice(faster=lambda mine, full: mine[0] > full[0])
            _choice(faster=lambda mine, full: mine[1] > full[1])
            _choice(faster=lambda mine, full: mine[1] > full[0])
                Your choice counts a format as faster although its range of speed overlaps that of float32: the
                difference may be chance.
                look: the slowest run of one format and the fastest of the other
            _choice(faster=lambda mine, full: mine[0] >= full[1])
            _choice(accurate=lambda mine, full: mine[1] > full[0])
                Your choice counts a range of speed or accuracy that only touches that of float32 as lying beyond it.
                look: `>` or `>=`
            _choice(accurate=lambda mine, full: True)
                Your choice takes a format although every one of its runs is less accurate than every one in float32.
                look: the second rule
            _choice(accurate=lambda mine, full: mine[0] >= full[0])
            _choice(accurate=lambda mine, full: mine[1] >= full[1])
                Your choice rules out a format whose range of accuracy overlaps that of float32. Only one that lies
                entirely below is less accurate.
                look: the best run of one format and the worst of the other
            _choice(accurate=lambda mine, full: mine[0] >= full[1])
                Your choice rules out a format because it is not more accurate. Only less accurate ones are ruled out.
            _choice(accurate=lambda mine, full: mine[1] >= full[0] and mine[0] <= full[1])
                Your choice rules out a format that is more accurate in all runs. Only lower accuracy rules it out.
            _choice(fits=lambda need, memory: True)
                Your choice never looks at the memory: a format that needs more than there is cannot run.
                look: the first rule
            _choice(fits=lambda need, memory: need < memory)
                Your choice rules out a format that needs exactly as much memory as there is. That fits.
                look: `<` or `<=`
            _choice(replaces=False)
                Your choice demands speed even where float32 doesn't fit. There, a slower format may also replace it.
                look: the third rule, after the word *or*
            _choice(worth=lambda row: row["speed"][1])
            _choice(worth=lambda row: sum(row["speed"]))
                Of several formats that may replace float32, your choice takes the one with the fastest run, or the
                fastest on average. Take the one whose slowest run is the fastest: you can count on that.
                look: the fourth rule
            _choice(worth=lambda row: sum(row["accuracy"]))
            _choice(worth=lambda row: -row["mib"])
                Of several formats that may replace float32, your choice takes the most accurate one, or the one that
                needs the least memory. The fourth rule looks at the speed.
            _choice(worth=lambda row: -row["speed"][0])
                Of several formats that may replace float32, your choice takes the slowest one: `max` or `min`?
            _choice(worth=lambda row: 0)
                Of several formats that may replace float32, your choice takes the first one in the table. The fourth
                rule says which one to take.
                look: a `return` inside a loop, or `[0]`
            = torch.float32
                Your choice is always float32. Where another format fits, is not less accurate and is faster, it pays.
            _choice(faster=lambda mine, full: True)
            = next((d for d in table if d != torch.float32), torch.float32)
                Your choice replaces float32 by a format that isn't faster, although float32 fits.
                look: the third rule
            = min(table, key=lambda d: table[d]["mib"])
                Your choice takes the format that needs the least memory. You don't need to save memory that is free.
            = str(_chosen(table, memory))
                Your choice is a string. Return one of the keys of the table: {expected}.
                when: isinstance(yours, str)
            = [_chosen(table, memory)]
            = table[_chosen(table, memory)]
                You return more than the format: return only one of the keys of the table, here {expected}.
                when: isinstance(yours, list | tuple | dict)
            = (table[torch.bfloat16], table[torch.float16], _chosen(table, memory))[2]
                A table may have only some of the formats, and your function asks for one that is not there. Here, the
                right choice is {expected}.
                look: a loop over the keys of the table
                when: says(yours, "torch.float16", "torch.bfloat16")
            = torch.bfloat16
                You chose {yours}, which is not in the table.
                look: return one of the keys of the table
                when: not isinstance(yours, Raised) and yours not in table
            _choice(fits=lambda need, memory: need <= 1.2 * memory)
                You chose {yours}, which needs more memory than there is. By the rules, it is {expected}.
                look: {table!s}, memory {memory}
                when: table[yours]["mib"] > memory
            _choice(accurate=lambda mine, full: mine[1] >= full[0] - 0.01)
                You chose {yours}, whose range of accuracy lies entirely below that of float32. By the rules, it is
                {expected}.
                look: {table!s}, memory {memory}
                when: table[yours]["accuracy"][1] < table[torch.float32]["accuracy"][0]
            = min(table, key=str)
                You chose {yours}. Its speed does not lie entirely above that of float32, and float32 fits.
                look: {table!s}, memory {memory}
                when: not isinstance(yours, Raised) and yours != torch.float32 == expected
            _choice(accurate=lambda mine, full: sum(mine) >= sum(full))
                You stay with float32. {expected} is not entirely less accurate, fits, and lies entirely above float32
                in speed, so it may replace it.
                look: {table!s}, memory {memory}
                when: yours == torch.float32
            _choice(worth=lambda row: sum(row["speed"]) * row["mib"])
                You chose {yours}. {expected} may replace float32 as well, and its slowest run is faster.
                look: {table!s}, memory {memory}
                when: yours in table
        """,
        by_case=True,
        also_right=[_by_loop],
    ),
)


# ---------------------------------------------------------------------------------------------------------------------


def _runs(new: Inputs) -> list[tuple]:
    """A longer run in which every rule shows, and a short one in which each good step doubles the scale."""
    interval = new.size(2, 3)
    good = ["good"] * interval
    long = [*good, "first", "second", *good[1:], "corner", "both", *good, "good", "nan", "all", *good]
    return [_run(new, interval, long), _run(new, 1, ["good", "good", "second", "good"])]


def _run(new: Inputs, interval: int, kinds: list[str]) -> tuple[list[Tensor], list[tuple], int]:
    """Parameters at the start; for each step the gradients of the first two and one summand, all without the scale."""
    start = [new.randn(new.size(2, 4), 3), new.randn(new.size(3, 6)), new.randn(3), new.randn(2)]
    steps = []
    for kind in kinds:
        first, second = (0.25 + 0.5 * new.rand(*value.shape) for value in start[:2])
        # float16 ends at 65504, and the scale is about a thousand. Mostly, one gradient of one parameter overflows.
        for value, kinds_of_it in ((first, ("first", "both")), (second, ("second", "both", "corner"))):
            if kind in kinds_of_it:
                value.view(-1)[0 if kind == "corner" else new.size(1, value.numel() - 1)] = 3e3
        if kind == "all":
            first, second = first + 3e3, second + 3e3
        steps.append((first, second, math.inf if kind == "nan" else 0.0))
    return start, steps, interval


def _scaled_steps(answer: Callable, start: list[Tensor], steps: list[tuple], growth_interval: int) -> dict:
    # The third never gets a gradient; that of the fourth is float32, and scaled it is beyond float16, but finite.
    first, second, third, fourth = (nn.Parameter(value.clone()) for value in start)
    others = {"params": [second], "lr": 0.05}, {"params": [fourth], "lr": 1e-5}
    optimizer = torch.optim.SGD([{"params": [first, third], "momentum": 0.5}, *others], lr=0.1)
    state, scales, returned, trained, moved = {"scale": 2.0**10, "good": 0}, [], [], [], []
    for one, other, infinite in steps:
        optimizer.zero_grad()
        loss = sum((p.half() * g.half()).float().sum() for p, g in ((first, one), (second, other)))
        loss = loss + 300 * fourth.sum() + second[1] * 0.0 * infinite  # the derivative of 0 · second · inf is nan
        result = call(answer, loss, optimizer, state, growth_interval, may_change=True, may_return_none=True)
        one = isinstance(result, np.bool_) or (isinstance(result, Tensor) and result.numel() == 1)
        returned.append(bool(result) if one else result)
        scale = state.get("scale")
        scales.append(scale.item() if isinstance(scale, Tensor | np.number) else scale)
        trained.append(torch.cat([p.detach().flatten() for p in (first, second, third, fourth)]))
        moved.append(not torch.equal(trained[-1], trained[-2] if moved else torch.cat([v.flatten() for v in start])))
    return {
        "The list of weights after the first step": trained[0],
        "The list of scales": scales,
        "The list of weights after the last step": trained[-1],
        "The list of what you return": returned,
        "The list of whether the weights moved in each step": moved,
    }


def _own_scaler(loss, optimizer, state, growth_interval):
    scale = state["scale"]
    (loss * scale).backward()
    parameters = [p for group in optimizer.param_groups for p in group["params"] if p.grad is not None]
    for parameter in parameters:
        parameter.grad /= scale
    taken = all(parameter.grad.isfinite().all() for parameter in parameters)
    if taken:
        optimizer.step()
        state["good"] += 1
    else:
        state.update(scale=scale / 2, good=0)
    if state["good"] == growth_interval:
        state.update(scale=scale * 2, good=0)
    return taken


def _own_scaler_with_foreach(loss, optimizer, state, growth_interval):
    scale = state["scale"]
    loss.mul(scale).backward()
    gradients = [p.grad for group in optimizer.param_groups for p in group["params"] if p.grad is not None]
    torch._foreach_mul_(gradients, 1 / scale)
    took = torch.stack([g.sum() for g in gradients]).sum().isfinite()
    if took:
        optimizer.step()
    state["good"] = state["good"] + 1 if took else 0
    state["scale"] = scale * (1 if took else 0.5)
    if state["good"] >= growth_interval:
        state.update(scale=torch.as_tensor(scale * 2), good=0)
    return took


def _own_scaler_of_pytorch(loss, optimizer, state, growth_interval):
    scaler = state.setdefault("scaler", torch.amp.GradScaler("cpu", 1024.0, growth_interval=growth_interval))
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    before = scaler.get_scale()
    scaler.update()
    state["scale"] = scaler.get_scale()
    return np.bool_(state["scale"] >= before)


exercise(
    "own_scaler",
    seconds=SLOW_START,
    title="Your own scaler",
    minutes=12,
    difficulty=4,
    points=4,
    takeaway="Dynamic scaling is a search that never ends: double until it overflows, then halve, skip one step, and "
    "continue.",
    hints=(
        "Scale the loss, run `backward()`, and divide the gradients by the same scale. Then one question decides "
        "everything: are *all* gradients finite?",
        "Finite: step, and that is one more good step in a row; after growth_interval of them, double the scale and "
        "start counting again. Not finite: no step, halve the scale, start counting again.",
        "`good = all(p.grad.isfinite().all() for p in parameters if p.grad is not None)`; the parameters are in "
        '`group["params"] for group in optimizer.param_groups`.',
    ),
    spec=Spec(
        draw=_runs,
        probe=_scaled_steps,
        solution=_own_scaler,
        rtol=1e-3,
        mistakes=r"""
            if p.grad is not None →
                Some parameters never get a gradient: their `.grad` is None, but your function uses it anyway.
                look: `if p.grad is not None`
                when: says(yours, "NoneType")
            optimizer.step() → pass
            all(parameter.grad.isfinite().all() for parameter in parameters)
                    → all(parameter.grad.abs().max() * scale < 65504 for parameter in parameters)
                No weight has moved after a step whose gradients are all finite.
                look: is `optimizer.step()` there? A step with finite gradients is good, even if a gradient in float32
                    is beyond 65504
                when: torch.equal(yours["The list of weights after the first step"], torch.cat([value.flatten() for
                    value in start]))
            optimizer.step() → pass && if taken:
                    → for p in parameters:\n        p.grad.nan_to_num_(0, 0, 0)\n    optimizer.step()\n    if taken:
                    || for p in parameters:\n        p.grad.nan_to_num_(0, 0,
                    0).mul_(taken)\n    optimizer.step()\n    if taken:
                You replace infinite gradients and step anyway. Skip the whole step: no weight moves.
                look: `nan_to_num`, or zeros; the other gradients and the momentum still move weights
            optimizer.step() → pass && if taken:
                    → for p in parameters:\n        p.grad = p.grad if p.grad.isfinite().all() else
                    None\n    optimizer.step()\n    if taken:
                You leave out only the parameters whose gradients overflow, and the others step alone. Skip the whole
                step.
                look: one decision for all parameters
            state["good"] += 1 → pass && if taken: → state['good'] += 1\n    if taken:
                    && scale=scale / 2, good=0 → scale=scale / 2
                    && update(scale=scale * 2 → update(scale=state['scale'] * 2
                Your function counts skipped steps as good ones: only a step that was taken counts.
            parameter.grad /= scale → pass
                    && optimizer.step()
                    → ready = state['good'] + 1 == growth_interval\n        for p in parameters:\n            p.grad /=
                    scale * (1 + ready)\n        optimizer.step()
                You divide the gradients by the scale after it has changed. They were multiplied by the old one.
                look: unscale and step first, then change the scale
            parameter.grad /= scale → pass || parameter.grad *= scale
                Your step uses gradients that are still multiplied by the scale, once or even twice.
                look: divide every `.grad` by the scale before `optimizer.step()`
            for parameter in parameters:
                    → for parameter in optimizer.param_groups[0]['params'][:1]: || for parameter in parameters[1:]:
                    || for parameter in parameters[:2]:
                You divide only some of the gradients by the scale: each group of the optimizer has its own parameters.
                look: all groups of `optimizer.param_groups`, and all parameters in each
            (loss * scale) → loss
            parameter.grad /= scale → parameter.grad /= scale * scale
                You divide the gradients by the scale more often than you multiplied the loss by it.
                look: `(loss * scale).backward()`, then one division of every `.grad`
            all(parameter.grad.isfinite().all() → not any(parameter.grad.isinf().any()
                    || not any(parameter.grad.isnan().any()
                You look for only one of inf and nan, and the other one reached the weights.
                look: `isfinite()` rules out both
            all(parameter.grad.isfinite().all() for parameter in parameters) → bool(loss.isfinite())
                Infinite gradients reached the weights: you look at the loss, which can be finite when they are not.
                look: the gradients, after `backward()`
            in parameters) → in parameters[:1]) || in parameters[1:])
                Infinite gradients reached the weights: you look at only some of the parameters.
                look: all groups of `optimizer.param_groups`, and all parameters in each
            isfinite().all() → isfinite().flatten()[0] || isfinite().any()
                Infinite gradients reached the weights: one finite element of each gradient is enough for your step.
                look: `.isfinite().all()`
            scale=scale * 2, good=0 → good=0
                Your scale never grows: double it after growth_interval good steps in a row.
            scale=scale / 2, good=0 → good=0
                Your scale does not shrink after an overflow: halve it when a step is skipped.
            scale=scale / 2, good=0 → scale=scale / 2
                After an overflow, your function keeps counting from where it was. Only good steps in a row count.
                look: `state["good"] = 0` when a step is skipped
            scale=scale * 2, good=0 → scale=scale * 2
            scale=scale * 2, good=0 → scale=scale * 2 && == growth → >= growth
                After the scale has grown, your function keeps counting: set `state["good"]` back to 0.
            == growth → > growth
                Your scale grows one step too late: the step that completes growth_interval counts, too.
                look: count first, then compare; or `>=` instead of `>`
            == growth_interval → >= max(growth_interval - 1, 1)
                Your scale grows one step too early: after growth_interval good steps, this one included.
            scale / 2 → scale / 2 ** sum(not p.grad.isfinite().all() for p in parameters)
                You halve the scale once for each parameter that overflows. Halve it once for each step.
                look: decide after the loop over the parameters
            scale / 2 → scale + scale && scale * 2 → scale / 2
                Your scale changes in the wrong direction: halve it after an overflow, double it after good steps.
            return taken → return not taken
                What you return is the wrong way around: True means that the step was taken.
            return taken → return True
                You return True in every step. Return False if the step was skipped.
            optimizer.step() → pass && if taken: → optimizer.step()\n    if taken:
            all(parameter → any(parameter
            in parameters) → in parameters[-1:])
                Infinite gradients reached the weights. Step only if every element of every gradient is finite.
                look: `.isfinite()` of each `.grad`, in all groups of the optimizer; `all` or `any`; the `if` before
                    `optimizer.step()`
                when: not yours["The list of weights after the last step"].isfinite().all()
            optimizer.step() → pass && if taken:
                    → for p in parameters:\n        p.grad.isfinite().all() or
                    p.grad.zero_()\n    optimizer.step()\n    if taken:
                In a step with a gradient that is not finite, weights moved. Zeros in place of gradients are not enough:
                the optimizer's momentum, and gradients that you leave, still move weights. Skip the whole step.
                look: `if` before `optimizer.step()`
                when: yours["The list of scales"] == expected["The list of scales"] and yours["The list of what you
                    return"] == expected["The list of what you return"] and yours["The list of whether the weights
                    moved in each step"] != expected["The list of whether the weights moved in each step"]
            state.update(scale=scale / 2, good=0) → scale, state['good'] = scale / 2, 0
                    && state.update(scale=scale * 2, good=0) → scale, state['good'] = scale * 2, 0
                Your scale never changes: store the new one where the next step finds it, in `state["scale"]`.
                when: {*yours["The list of scales"]} == {1024.0}
            return taken → state['scale'] = str(state['scale'])\n    return taken
                Your scale is no longer a number: keep a Python float in `state["scale"]`.
                when: says(yours, "can't multiply sequence", "only integer tensors")
            taken = all( → [p.grad.nan_to_num_(0, 0, 0) for p in parameters]\n    taken = all(
                You never skip a step: what you look at are finite numbers that took the place of inf and nan.
                look: `nan_to_num`, `clamp`; one look at the gradients as `backward()` left them
                when: all(each is True for each in yours["The list of what you return"])
            scale * 2 → scale * 4
            scale / 2 → scale / 4 || max(scale / 2, 1024.0)
                Your scale differs from that of `torch.amp.GradScaler`. With growth_interval = {growth_interval} it is
                {expected[The list of scales]!s}, yours was {yours[The list of scales]!s}.
                look: double after growth_interval good steps in a row, halve after an overflow
                when: yours["The list of scales"] != expected["The list of scales"]
            return taken → pass || return loss.item() || return state
                You do not return whether the step was taken, True or False.
                when: not all(isinstance(each, bool) for each in yours["The list of what you return"])
            optimizer.step() → [p.data.sub_(0.1 * p.grad) for p in parameters]
                The weights after the first step are not those that the optimizer's own step gives: each group has its
                learning rate, and perhaps momentum.
                look: `optimizer.step()`
                when: not torch.allclose(yours["The list of weights after the first step"], expected["The list of
                    weights after the first step"], 1e-3)
        """,
        also_right=[_own_scaler_with_foreach, _own_scaler_of_pytorch],
    ),
)
