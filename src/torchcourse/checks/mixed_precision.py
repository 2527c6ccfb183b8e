"""The exercises of chapter 07: spacing of numbers, an overflow found, the scaled step, a run rescued, a choice made.

All of them run on the CPU, on every machine: autocast and `torch.amp.GradScaler` work there as they do on a GPU, and a
few numbers are enough to show what half precision does to them.
"""

import copy
import linecache
import math
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from torchcourse.checks.engine import (
    AnswerRaised,
    Incorrect,
    Inputs,
    call,
    chapter,
    is_students,
    mistake,
    same,
)
from torchcourse.checks.training_loop import SLOW_START, number, plain_number, weights

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


class Seen(list):
    """The dtypes in which the linear layers of a model computed, one for each call, and those of their weights."""

    def __init__(self) -> None:
        super().__init__()
        self.weights: list[torch.dtype] = []


@contextmanager
def computed_in(*models: nn.Module) -> Iterator[Seen]:
    """Watch in which dtypes the linear layers compute."""
    seen = Seen()

    def write_down(layer: nn.Module, given: Any, out: Tensor) -> None:
        seen.append(out.dtype)
        seen.weights.append(layer.weight.dtype)

    layers = [layer for model in models for layer in model.modules() if isinstance(layer, nn.Linear)]
    hooks = [layer.register_forward_hook(write_down) for layer in layers]
    try:
        yield seen
    finally:
        for hook in hooks:
            hook.remove()


def kept_float32(seen: Seen, *models: nn.Module) -> None:
    """Raise Incorrect if the weights themselves were cast, be it for a while."""
    dtypes = [*seen.weights, *(parameter.dtype for model in models for parameter in model.parameters())]
    for dtype in dtypes:
        if dtype != torch.float32:
            raise Incorrect(
                f"Your function casts the weights of the model to {short(dtype)}: there a small update is rounded "
                "away, and whoever passed the model finds it changed.",
                "weights in float32; autocast casts copies of them where it pays",
                f"weights in {short(dtype)}",
                "`model.half()` or `model.to(...)`: autocast replaces it",
            )


def in_dtype(seen: Seen, wanted: torch.dtype) -> None:
    """Raise Incorrect unless every layer computed in `wanted`, a half precision."""
    if not seen:
        raise Incorrect("No image ever went through the model.", look="call the model")
    wrong = [dtype for dtype in seen if dtype != wanted]
    if not wrong:
        return
    if wrong[0] == torch.bfloat16:
        raise Incorrect(
            "The layers compute in bfloat16, which is what autocast takes on a CPU if you do not name a dtype.",
            f"layers in {short(wanted)}",
            "layers in bfloat16",
            "`dtype=` of `torch.autocast`",
        )
    if wrong[0] in HALF:
        raise Incorrect(
            f"The layers compute in {short(wrong[0])}, whatever dtype was asked for.",
            f"layers in {short(wanted)}",
            f"layers in {short(wrong[0])}",
            "`dtype=` of `torch.autocast`",
        )
    if len(wrong) == len(seen):
        raise Incorrect(
            "The layers compute in float32: autocast is not there, or it is for another kind of device.",
            f"layers in {short(wanted)}",
            f"layers in {short(wrong[0])}",
            "`with torch.autocast(images.device.type, dtype=...)` around the forward pass",
        )
    raise Incorrect(
        "Some layers compute in float32: too much stands outside autocast, or behind `enabled=False`.",
        f"all layers in {short(wanted)}",
        f"{len(wrong)} of {len(seen)} in {short(wrong[0])}",
        "what stands between switching autocast off and on again",
    )


def short(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def lasting(value: Tensor) -> Tensor:
    return value.detach().clone()


class FirstOverflow(TorchDispatchMode):
    """Finds the first operation that makes inf or nan out of finite numbers, and the line of the answer it is in."""

    def __init__(self) -> None:
        super().__init__()
        self.found: tuple[str, torch.dtype, str] | None = None  # operation, dtype, line

    def __torch_dispatch__(self, function: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        out = function(*args, **(kwargs or {}))
        if self.found is None and _is_float(out) and not out.isfinite().all():
            finite = all(value.isfinite().all() for value in args if _is_float(value))
            if finite:
                name = function.overloadpacket.__name__.strip("_")
                self.found = name, out.dtype, _line_of_the_answer()
        return out


def _is_float(value: Any) -> bool:
    return isinstance(value, Tensor) and value.is_floating_point()


def _line_of_the_answer() -> str:
    frame = sys._getframe(1)
    while frame is not None and not is_students(frame.f_code.co_filename):
        frame = frame.f_back
    if frame is None:
        return ""
    text = linecache.getline(frame.f_code.co_filename, frame.f_lineno).strip()
    return f"line {frame.f_lineno}: `{text}`" if text else f"line {frame.f_lineno}"


# ---------------------------------------------------------------------------------------------------------------------
# Answers that the lab lends to whoever is not there yet


def borrowed_step(
    model: nn.Module,
    images: Tensor,
    labels: Tensor,
    optimizer: torch.optim.Optimizer,
    scaler: torch.amp.GradScaler,
    dtype: torch.dtype,
    max_norm: float,
) -> float:
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
    full, fits = table[torch.float32], {dtype: row for dtype, row in table.items() if row["mib"] <= memory}
    pays = [
        dtype
        for dtype, row in fits.items()
        if dtype != torch.float32
        and row["accuracy"][1] >= full["accuracy"][0]
        and (row["speed"][0] > full["speed"][1] or torch.float32 not in fits)
    ]
    return max(pays, key=lambda dtype: table[dtype]["speed"][0], default=torch.float32)


# ---------------------------------------------------------------------------------------------------------------------


@exercise(
    "spacing_of",
    title="Mind the gap",
    minutes=5,
    difficulty=1,
    points=1,
    takeaway="eps is the gap at 1. It doubles with every power of two; at 2048 float16 knows only every second number.",
    hints=(
        "`torch.finfo(dtype).eps` is the gap after 1. How large is it after 2, after 4, after 1000?",
        "`torch.nextafter(x, y)` gives the neighbor of x on the side of y, for tensors in their own dtype. Which y "
        "lies farther from zero than x, whatever its sign?",
        "`x = torch.tensor(abs(value), dtype=dtype)`, then the distance to `torch.nextafter(x, ...)` with infinity in "
        "that dtype.",
    ),
)
def spacing_of(answer: Any, new: Inputs) -> None:
    for dtype in (torch.float32, torch.float16, torch.bfloat16):
        eps = torch.finfo(dtype).eps
        between = 0.0
        while not 0.1 < abs(_rounding(between, dtype)) < 0.4:  # neither a number of the format nor halfway between two
            between = (1.1 + 0.35 * new.rand(1).item()) * 2.0 ** new.size(2, 9)
        power = 2.0 ** new.size(2, 6)
        almost = power * (1 - eps / 8)  # rounds up to the power of two
        below = power * (1 - eps / 2)  # the last number of the format before it
        for value in (between, 1 / between, power, 1 / power, -between, -power, almost, below):
            x = torch.tensor(value, dtype=dtype)
            right = _gap(x, math.copysign(math.inf, value))
            yours = call(answer, value, dtype)
            if isinstance(yours, Tensor) and yours.numel() == 1:  # a tensor of one number will do
                yours = yours.double().item()
            if isinstance(yours, str) or plain_number(yours) is None:
                raise Incorrect("Your result is not a number.", "a Python float", yours)
            yours = plain_number(yours)
            here = f"`spacing_of({value:.8g}, {dtype})`"
            if math.isnan(yours):
                raise Incorrect(f"{here} is nan.", f"{right:g}", "nan", "a logarithm of a negative number?")
            if near(yours, right):
                continue
            info = torch.finfo(dtype)

            def slip(
                wrong: float,
                problem: str,
                look: str | None = None,
                yours: float = yours,
                right: float = right,
                here: str = here,
            ) -> None:
                if near(yours, wrong) and not near(wrong, right):
                    raise Incorrect(problem, f"{right:g} for {here}", f"{yours:g}", look)

            slip(
                -right,
                "Your distance is negative. A distance has no sign, also where numbers have one.",
                "the difference of two negative numbers: `abs`",
            )
            if value == below:
                slip(
                    right * 2,
                    f"Your gap is twice too large just below a power of two: in {short(dtype)} a logarithm is rounded, "
                    "here up to the next whole number.",
                    "the logarithm in float64, by `math.log2` or `.double()`, or none at all",
                )
            slip(
                info.eps,
                "This is `torch.finfo(dtype).eps`, the gap between 1 and the next number. Elsewhere the gap is "
                "another: it doubles with each power of two.",
                "what is the gap after 2?",
            )
            for unrounded in (value, x.double().item()):
                slip(
                    info.eps * abs(unrounded),
                    "You multiplied eps by the value. The gap does not grow with every number: it stays the same from "
                    "one power of two to the next, and doubles there.",
                    "`2 ** floor(log2(...))`, or `torch.nextafter`",
                )
            slip(info.resolution, "`resolution` is eps as a power of ten, for printing. It is not a gap.")
            if value == almost:
                slip(
                    right / 2,
                    f"The value is not a number of this format: it is stored as {x.item():g}. Round it first, then ask "
                    "for its neighbor.",
                    "`torch.tensor(value, dtype=dtype)` before everything else",
                )
            slip(
                right / 2,
                "Your neighbor lies on the side of zero. At a power of two the gaps on both sides differ: the one "
                "towards zero is half as large.",
                "for a negative number, farther from zero is down" if value < 0 else "the direction of the neighbor",
            )
            slip(
                right * 2,
                "Your gap is twice too large: is the exponent rounded up somewhere?",
                "`floor`, also of a logarithm that is negative",
            )
            for sign in (1.0, -1.0):
                beyond = torch.nextafter(x, torch.tensor(sign * math.inf, dtype=dtype)).double().item()
                slip(
                    abs(beyond - value),
                    f"You measured from the value itself, which {short(dtype)} does not have: it is stored as "
                    f"{x.double().item():.8g}.",
                    "both ends of the distance are numbers of the format",
                )
            for other in (torch.float64, torch.float32, torch.float16, torch.bfloat16):
                if other != dtype:
                    y = torch.tensor(value, dtype=other)
                    slip(
                        _gap(y, math.copysign(math.inf, value)),
                        f"This is the gap of {short(other)}: the dtype that came in is {short(dtype)}.",
                        "`torch.tensor(value, dtype=dtype)`",
                    )
            for tiny in (info.smallest_normal, info.smallest_normal * info.eps):
                slip(tiny, "This is the smallest number above zero, not the gap at this value.", "`torch.nextafter`")
            if yours == 0:
                raise Incorrect(
                    "Your distance is zero: the number that you added was rounded away, or the neighbor is the number "
                    "itself.",
                    f"{right:g} for {here}",
                    "0",
                    "`torch.nextafter` gives the neighbor without guessing",
                )
            raise Incorrect(f"{here} is not right.", f"{right:g}", f"{yours:g}", "the neighbor farther from zero")


def _gap(x: Tensor, towards: float) -> float:
    """The distance from a number to its neighbor in a direction."""
    return abs((torch.nextafter(x, torch.tensor(towards, dtype=x.dtype)).double() - x.double()).item())


def _rounding(value: float, dtype: torch.dtype) -> float:
    """By how much a number is rounded, as a share of the gap."""
    x = torch.tensor(value, dtype=dtype)
    return (x.double().item() - value) / _gap(x, math.inf)


def near(a: float, b: float) -> bool:
    """Equal but for a little rounding, at any size."""
    return math.isclose(a, b, rel_tol=1e-6)


# ---------------------------------------------------------------------------------------------------------------------


@exercise(
    "safe_loss",
    seconds=SLOW_START,
    title="One operation too many",
    minutes=8,
    difficulty=2,
    points=2,
    takeaway="Autocast knows many operations that need float32, not all: for squares, sums and means look yourself.",
    hints=(
        "Which of the intermediate results can pass 65504, the largest number of float16? Print their `.max()`, line "
        "by line.",
        "Features of a few hundred are fine. Their squares are not. The cast has to come *before* the numbers become "
        "too large.",
        "In the line of `power`, write `features.float()` where `features` stood; leave all other lines alone.",
    ),
)
def safe_loss(answer: Any, new: Inputs) -> None:
    pixels, width, classes = new.size(6, 12), new.size(10, 16), new.size(4, 8)
    count = new.size(9, 14)
    encoder = nn.Sequential(nn.Flatten(), linear(new, pixels, width, size=700.0))
    head = linear(new, width, classes, size=2.0)
    images, labels = new.randn(count, 1, 1, pixels), new.ints(0, classes, (count,))

    def forward(encoder: nn.Module, head: nn.Module, change: Callable[[Tensor], Tensor] = lambda x: x) -> Tensor:
        """The same loss in float32."""
        features = change(encoder(images))
        power = (features * features).mean(dim=1, keepdim=True)
        logits = head(features / power.sqrt())
        return F.cross_entropy(logits, labels) + 0.01 * logits.logsumexp(dim=1).square().mean()

    reference = copy.deepcopy((encoder, head))
    expected = forward(*reference)
    expected.backward()

    watch = FirstOverflow()
    with computed_in(encoder, head) as seen, watch:
        try:
            yours = call(answer, encoder, head, images.clone(), labels.clone(), may_change=True)
        except AnswerRaised as raised:
            if "Double" in str(raised.error):
                raise Incorrect(
                    "A tensor of float64 met float16 weights: autocast casts float32 and half precision, and leaves "
                    "float64 alone.",
                    "the one operation in float32",
                    f"{raised.error}",
                    "`.float()` instead of `.double()`",
                ) from None
            kept_float32(seen, encoder, head)
            raise
    kept_float32(seen, encoder, head)
    if not isinstance(yours, Tensor):
        raise Incorrect("Your loss is not a tensor: nobody could train with it.", "a tensor with a graph", yours)
    if torch.bfloat16 in seen:
        raise Incorrect(
            "The layers compute in bfloat16. It would not overflow, but it has fewer digits, and many GPUs lack it: "
            "the task here is float16.",
            "layers in float16",
            "layers in bfloat16",
            "`dtype=` of `torch.autocast`",
        )
    if yours.numel() != 1:
        raise Incorrect("Your loss is not one number.", "a tensor without axes", tuple(yours.shape))
    if watch.found and watch.found[1] in HALF:
        operation, dtype, line = watch.found
        raise Incorrect(
            f"An operation overflows: `{operation}` in {short(dtype)} makes inf of finite numbers. A cast behind it "
            "comes too late, and switching autocast off casts nothing by itself.",
            "the input of that operation in float32",
            f"its input is still {short(dtype)}",
            line,
        )
    in_dtype(seen, torch.float16)
    if len(seen) < 2:
        raise Incorrect("Encoder and head are both needed, once each.", "2 layers called", f"{len(seen)}")
    if not yours.requires_grad:
        raise Incorrect("Your loss has no graph: nobody could train with it.", look="`no_grad`, `detach`, `.item()`")
    value = yours.item()
    if not math.isfinite(value):
        raise Incorrect("Your loss is not finite.", f"{expected.item():.4f}", f"{value}", "print what comes before it")
    if yours.dtype == torch.float64:
        raise Incorrect("Your loss is float64.", "torch.float32", str(yours.dtype), "`.float()` instead of `.double()`")
    if yours.dtype != torch.float32:
        raise Incorrect(
            "Your loss is in half precision: the cross-entropy has left autocast.",
            "torch.float32",
            str(yours.dtype),
            "the loss belongs inside the `with` block, where autocast computes it in float32",
        )
    if abs(value - expected.item()) > 0.01 * abs(expected.item()):
        raise Incorrect(
            "Your loss is finite, but it is another loss: something cuts the numbers off, or a line was lost.",
            f"{expected.item():.4f} as in float32",
            f"{value:.4f}",
            "clamping, `nan_to_num`, or leaving lines out changes the model; casting does not",
        )
    (yours * 1024).backward()  # scaled, so that nothing underflows
    for mine, theirs in zip((encoder, head), reference, strict=True):
        for p in mine.parameters():
            if p.grad is None or not p.grad.isfinite().all():
                raise Incorrect(
                    "The loss is right, but its gradients are not: none, or not finite.",
                    "a finite gradient for every weight",
                    "none" if p.grad is None else "inf or nan",
                    "`detach` and `no_grad` cut the graph; `.float()` does not",
                )
        got = torch.cat([p.grad.flatten() for p in mine.parameters()]) / 1024
        wanted = torch.cat([p.grad.flatten() for p in theirs.parameters()])
        if (got - wanted).norm() > 0.05 * wanted.norm():
            raise Incorrect(
                "The loss is near, but its gradient is not that of the float32 forward: numbers are cut off, or the "
                "graph is.",
                f"gradient of length {wanted.norm():.4g}",
                f"length {got.norm():.4g}",
                "`detach` and `no_grad` cut the graph, `clamp` the numbers; `.float()` cuts nothing",
            )


# ---------------------------------------------------------------------------------------------------------------------


class Log:
    """What happened in one step, in order, and the gradients that the optimizer met."""

    def __init__(self) -> None:
        self.events: list[str] = []
        self.gradients: list[Tensor] = []
        self.scaled: list[Tensor] = []


class LoggedSGD(torch.optim.SGD):
    """SGD that writes down zero_grad, backward (or "summed": added to old gradients) and whose step it was."""

    def __init__(self, model: nn.Module, lr: float) -> None:
        super().__init__(model.parameters(), lr=lr)
        self.log, self.by_scaler = Log(), False
        first, arrived = next(model.parameters()), []

        def arrive(gradient: Tensor) -> None:  # also for torch.autograd.grad, which adds to nothing
            self.log.events.append("backward")
            arrived.append(gradient.clone())

        def compare(p: Tensor) -> None:
            if not torch.allclose(p.grad, arrived.pop().to(p.grad.dtype), equal_nan=True):
                self.log.events[-1] = "summed"

        first.register_hook(arrive)
        first.register_post_accumulate_grad_hook(compare)

    def zero_grad(self, set_to_none: bool = True) -> None:
        self.log.events.append("zero_grad")
        super().zero_grad(set_to_none)

    def step(self, closure: Any = None) -> Any:
        frame = sys._getframe(1)
        while frame is not None and not frame.f_code.co_filename.endswith("grad_scaler.py"):
            frame = frame.f_back
        self.log.events.append("step" if self.by_scaler else "strange step" if frame else "bare step")
        parameters = [p for group in self.param_groups for p in group["params"]]
        if all(p.grad is not None for p in parameters):
            self.log.gradients.append(torch.cat([p.grad.detach().flatten().float() for p in parameters]))
        return super().step(closure)


class LoggedScaler(torch.amp.GradScaler):
    """A GradScaler that writes down its calls in the log of the optimizer."""

    def __init__(self, optimizer: LoggedSGD, **options: Any) -> None:
        super().__init__("cpu", **options)
        self.optimizer = optimizer

    def scale(self, outputs: Any) -> Any:
        self.optimizer.log.events.append("scale")
        if isinstance(outputs, Tensor):
            self.optimizer.log.scaled.append(outputs.detach())
        return super().scale(outputs)

    def unscale_(self, optimizer: Any) -> None:
        if not self.optimizer.by_scaler:  # else it is scaler.step that calls it
            self.optimizer.log.events.append("unscale_")
        super().unscale_(optimizer)

    def step(self, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
        self.optimizer.log.events.append("scaler.step")
        self.optimizer.by_scaler = True
        try:
            return super().step(optimizer, *args, **kwargs)
        finally:
            self.optimizer.by_scaler = False

    def update(self, new_scale: Any = None) -> None:
        self.optimizer.log.events.append("update")
        super().update(new_scale)


ORDER = "scale → backward → unscale_ → clip → scaler.step → update"


@exercise(
    "scaled_step",
    seconds=SLOW_START,
    title="The step in its right order",
    minutes=10,
    difficulty=3,
    points=3,
    takeaway="scale, backward, unscale_, clip, step, update: the gradients must be real before anybody looks at them.",
    hints=(
        "Forward and loss stand inside autocast. All that follows goes through the scaler, and the clipping has to see "
        "gradients without the scale.",
        "`scaler.scale(loss).backward()`, `scaler.unscale_(optimizer)`, clip, then two more calls of the scaler: one "
        "steps, one changes the scale.",
        "`nn.utils.clip_grad_norm_(model.parameters(), max_norm)`, `scaler.step(optimizer)`, `scaler.update()`; clear "
        "old gradients before the backward pass; return `loss.item()`.",
    ),
)
def scaled_step(answer: Any, new: Inputs) -> None:
    pixels, classes, lr = new.size(5, 9), new.size(3, 6), 0.2
    model = nn.Sequential(nn.Flatten(), linear(new, pixels, 10, 1.5), nn.ReLU(), linear(new, 10, classes, 1.5))
    batches = [(new.randn(n, 1, 1, pixels), new.ints(0, classes, (n,))) for n in new.sizes(5, 6, 14)]
    batches[2][0][0, 0, 0, 0] = 3e5  # float16 makes inf of it: this step has to be skipped
    free = copy.deepcopy(model)
    F.cross_entropy(free(batches[0][0]), batches[0][1]).backward()
    norm = nn.utils.get_total_norm([p.grad for p in free.parameters()]).item()
    for dtype, max_norm in ((torch.float16, norm / 4), (torch.bfloat16, norm * 50)):
        _judge_scaled_step(answer, new, model, batches, dtype, max_norm, lr)


def _judge_scaled_step(
    answer: Any,
    new: Inputs,
    start: nn.Module,
    batches: list[tuple[Tensor, Tensor]],
    dtype: torch.dtype,
    max_norm: float,
    lr: float,
) -> None:
    """float16 with a scaler; bfloat16 with one that is disabled and does nothing but step."""
    needed = dtype == torch.float16
    mine, right = copy.deepcopy(start), copy.deepcopy(start)
    for parameter in mine.parameters():  # old gradients, as somebody's backward before may have left them
        parameter.grad = new.randn(*parameter.shape)

    def tools(model: nn.Module) -> tuple[LoggedSGD, LoggedScaler]:
        optimizer = LoggedSGD(model, lr)
        return optimizer, LoggedScaler(optimizer, init_scale=4096.0, growth_interval=2, enabled=needed)

    (optimizer, scaler), (reference, reference_scaler) = tools(mine), tools(right)
    if not needed:  # where nothing can overflow, no batch is special
        batches = [batches[0], batches[1], batches[3]]
    for i, (images, labels) in enumerate(batches):
        overflow = needed and i == 2
        reference.log, optimizer.log = Log(), Log()
        loss, unclipped, scale = _reference_step(right, images, labels, reference, reference_scaler, dtype, max_norm)
        before = weights(mine)
        given = images.clone(), labels.clone()
        with computed_in(mine) as seen:
            try:
                yours = call(
                    answer, mine, *given, optimizer, scaler, dtype, max_norm, may_change=True, may_return_none=True
                )
            except AnswerRaised as raised:
                kept_float32(seen, mine)
                _explain_scaler(str(raised.error), optimizer.log.events)
                raise
        kept_float32(seen, mine)
        in_dtype(seen, dtype)
        _judge_order(optimizer.log, needed)
        stepped = optimizer.log.gradients
        if overflow:
            if not torch.equal(before, weights(mine)):
                raise Incorrect(
                    "A batch with infinite gradients changed the weights: that step has to be skipped.",
                    "the weights as they were",
                    "nan in the weights" if not weights(mine).isfinite().all() else "other weights",
                    "`scaler.step(optimizer)` skips it by itself; nothing else that steps does",
                )
        elif stepped:
            _judge_clipping(stepped[-1], reference.log.gradients[-1], unclipped, scale, max_norm, optimizer.log)
        elif not {"scaler.step", "bare step"} & set(optimizer.log.events):
            raise Incorrect(
                "No step was ever taken. A scaler that is switched off does not scale, but its `step` steps.",
                ORDER,
                _told(optimizer.log.events),
                "the calls are the same with and without a scaler: no `if`",
            )
        elif not torch.equal(before, weights(mine)):
            raise Incorrect(
                "The weights have changed, and not by the optimizer that came in.",
                "`scaler.step(optimizer)` with the `optimizer` of the arguments",
                _told(optimizer.log.events),
                "another optimizer in your function, or a change by hand",
            )
        else:
            raise Incorrect(
                "The scaler skipped a step whose gradients were fine.",
                "a step",
                "none: it found inf or nan",
                "scaling the loss twice, or in half precision, makes the gradients too large",
            )
        if scaler.get_scale() != reference_scaler.get_scale():
            raise Incorrect(
                "The scale is not what `scaler.update()` makes of it.",
                f"{reference_scaler.get_scale():g}" + (" after a batch with infinite gradients" if overflow else ""),
                f"{scaler.get_scale():g}",
                "one `scaler.update()` for each step, without an argument",
            )
        if not overflow:
            yours = _python_loss(yours, loss, scale)
            same(yours, loss, "The loss you return", rtol=2e-3, look="the loss before scaling, as `.item()`")
    same(weights(mine), weights(right), "The model after your steps (all its weights in one row)", rtol=2e-3, atol=1e-4)


def _reference_step(
    model: nn.Module,
    images: Tensor,
    labels: Tensor,
    optimizer: LoggedSGD,
    scaler: LoggedScaler,
    dtype: torch.dtype,
    max_norm: float,
) -> tuple[float, Tensor, float]:
    """The step as it should be: the loss, the gradients before clipping in one row, and the scale that was used."""
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=dtype):
        loss = F.cross_entropy(model(images), labels)
    scaler.scale(loss).backward()
    scale = scaler.get_scale()
    scaler.unscale_(optimizer)
    unclipped = torch.cat([lasting(p.grad).flatten() for p in model.parameters()])
    nn.utils.clip_grad_norm_(model.parameters(), max_norm)
    scaler.step(optimizer)
    scaler.update()
    return loss.item(), unclipped, scale


def _explain_scaler(message: str, events: list[str]) -> None:
    """The scaler's own complaints, in the words of this chapter; nothing for any other error."""
    happened = _told(events)
    update = (
        "The scaler was never updated after the step before: it still believes that this is the same step, and its "
        "scale can never change."
    )
    if "unscale_() has already been called" in message:
        if events.count("unscale_") > 1:
            raise Incorrect(
                "You unscale twice: the gradients would be divided by the scale two times, so the scaler refuses.",
                ORDER,
                happened,
                "one `scaler.unscale_(optimizer)` for each step",
            )
        raise Incorrect(update, ORDER, happened, "`scaler.update()` after `scaler.step(optimizer)`")
    if "step() has already been called" in message:
        if events.count("scaler.step") > 1:
            raise Incorrect("You call `scaler.step` twice for one batch.", ORDER, happened, "`scaler.step(optimizer)`")
        raise Incorrect(update, ORDER, happened, "`scaler.update()` after `scaler.step(optimizer)`")
    if "unscale_() is being called after step()" in message:
        raise Incorrect(
            "You unscale after the step: clipping there changes gradients that nobody uses any more.",
            ORDER,
            happened,
            "`unscale_` and the clipping come before `scaler.step`",
        )
    if "No inf checks were recorded" in message:
        _bare_step(events)
        if events.count("update") > 1:
            _updated_twice(happened)
        if "zero_grad" in _after(events, ("backward", "summed")):
            _cleared_too_late(happened)
        if "update" in events and "scaler.step" not in events:
            raise Incorrect(
                "Nothing was unscaled and no `scaler.step` was made before `scaler.update()`: the scaler has "
                "nothing to go by.",
                ORDER,
                happened,
                "`scaler.step(optimizer)` comes before `scaler.update()`",
            )
        raise Incorrect("There are no gradients when the scaler steps.", ORDER, happened, "`.backward()`")
    if "_scale is None" in message:
        raise Incorrect("The loss never went through the scaler.", ORDER, happened, "`scaler.scale(loss).backward()`")
    if "unscale FP16 gradients" in message:
        raise Incorrect(
            "The gradients are float16, because the weights are: a scaler works with float32 weights only.",
            "weights in float32, autocast around the forward pass",
            look="`model.half()`",
        )


def _told(events: list[str]) -> str:
    """The events as the answer's author would tell them."""
    words = {"summed": "backward", "bare step": "optimizer.step", "strange step": "step of another scaler"}
    told = [words.get(event, event) for event in events if event != "step"]
    return "what happened: " + (" → ".join(told) or "nothing")


def _after(events: list[str], names: tuple[str, ...]) -> list[str]:
    """The events after the first of these names, up to the step."""
    for i, event in enumerate(events):
        if event in names:
            rest = events[i + 1 :]
            stops = [j for j, name in enumerate(rest) if name in ("scaler.step", "bare step")]
            return rest[: stops[0]] if stops else rest
    return []


def _bare_step(events: list[str]) -> None:
    if "bare step" in events:
        raise Incorrect(
            "You call `optimizer.step()` yourself. It steps also when the gradients are infinite, and then every "
            "weight is nan.",
            ORDER,
            _told(events),
            "`scaler.step(optimizer)` looks first, then steps or skips",
        )


def _cleared_too_late(happened: str) -> None:
    raise Incorrect(
        "The gradients are cleared between backward and step: nothing is left for the step to use.",
        "zero_grad before backward, or after the step",
        happened,
        "the place of `optimizer.zero_grad()`",
    )


def _updated_twice(happened: str) -> None:
    raise Incorrect("You update the scaler more than once.", ORDER, happened, "one `scaler.update()` for each step")


def _judge_order(log: Log, needed: bool) -> None:
    """Raise Incorrect when a call is missing or stands in the wrong place. Numbers come later.

    needed: the scaler is. Where it is switched off, nobody has to call it.
    """
    events = log.events
    happened = _told(events)
    backward = [i for i, event in enumerate(events) if event in ("backward", "summed")]
    if not backward:
        raise Incorrect("No gradient was ever computed.", ORDER, happened, "`scaler.scale(loss).backward()`")
    if any(value.dtype in HALF for value in log.scaled):
        raise Incorrect(
            f"Your loss is {short(log.scaled[-1].dtype)}: it is computed outside autocast, from logits in half "
            "precision. Times the scale it may overflow, and it has lost digits.",
            "a loss in float32",
            str(log.scaled[-1].dtype),
            "the line of the loss belongs into the `with` block",
        )
    if "zero_grad" in _after(events, ("backward", "summed")):
        _cleared_too_late(happened)
    if "strange step" in events:
        raise Incorrect(
            "A scaler that you made yourself took the step. A new one in each step forgets its scale each time.",
            "the calls of the `scaler` that came in",
            happened,
            "`GradScaler(...)` in your function",
        )
    if len(backward) > 1:
        raise Incorrect("More than one backward pass in one step.", ORDER, happened, "one of each")
    if "summed" in events:
        raise Incorrect(
            "Old gradients are still there: `backward()` adds to them, and these were not even scaled.",
            "`optimizer.zero_grad()` before each backward",
            happened,
        )
    if not needed:
        return
    _bare_step(events)
    if "scale" not in events or events.index("scale") > backward[0]:
        raise Incorrect(
            "The backward pass starts from a loss that was not scaled: small gradients become zero in float16.",
            ORDER,
            happened,
            "`scaler.scale(loss).backward()`",
        )
    if events.count("scale") > 1:
        raise Incorrect("Scaled more than once in one step.", ORDER, happened, "one of each")
    if "scaler.step" not in events:
        raise Incorrect("No step was ever taken.", ORDER, happened, "`scaler.step(optimizer)`")
    if events.index("scaler.step") < backward[0]:
        raise Incorrect("Your step comes before the backward pass.", ORDER, happened)
    if "update" not in events:
        raise Incorrect(
            "`scaler.update()` is missing: the scale would never change, and the next step would be refused.",
            ORDER,
            happened,
            "after `scaler.step(optimizer)`",
        )
    if events.index("update") < events.index("scaler.step"):
        raise Incorrect(
            "You update the scaler before the step: it forgets that the gradients are already unscaled, and divides "
            "them again, by another scale.",
            ORDER,
            happened,
            "`scaler.update()` is the last of the scaler's calls",
        )
    if events.count("update") > 1:
        _updated_twice(happened)


def _judge_clipping(yours: Tensor, right: Tensor, unclipped: Tensor, scale: float, max_norm: float, log: Log) -> None:
    """Compare the gradients that the optimizer met with the right ones, and with those of known mistakes."""
    happened = _told(log.events)

    def is_(wrong: Tensor) -> bool:
        far = (right - wrong).norm() > 0.02 * right.norm()
        return bool(far and (yours - wrong).norm() < 0.01 * wrong.norm())

    length = unclipped.norm()
    if is_(unclipped):
        raise Incorrect(
            "The gradients were not clipped when the step used them.",
            f"a gradient of length {max_norm:.3g}",
            f"length {length:.3g}",
            "clip after `unscale_` and before `scaler.step`",
        )
    # Clipped while still multiplied by the scale, which scaler.step then takes away.
    if scale != 1 and is_(unclipped * max_norm / (length * scale)):
        forgotten = "unscale_" not in log.events
        raise Incorrect(
            "Nearly nothing is left of the gradients: they were clipped while they were still multiplied by the scale"
            + (", or divided by it both by you and by `scaler.step`." if forgotten else "."),
            ORDER if forgotten else f"{ORDER}; {happened}",
            f"a gradient of length {yours.norm():.3g} instead of {right.norm():.3g}",
            "`scaler.unscale_(optimizer)` is missing" if forgotten else "`unscale_` comes before the clipping",
        )
    if is_(unclipped * max_norm / length):
        raise Incorrect(
            "You made a short gradient longer. Clipping only shortens those that are longer than max_norm.",
            f"length {right.norm():.3g}",
            f"length {yours.norm():.3g}",
            "`nn.utils.clip_grad_norm_`, or a factor of at most 1",
        )
    if is_(unclipped.clamp(-max_norm, max_norm)):
        raise Incorrect(
            "You clipped each value. Wanted is the length of all gradients together, so that their direction stays.",
            f"length {right.norm():.3g}",
            f"length {yours.norm():.3g}",
            "`nn.utils.clip_grad_norm_`",
        )
    if is_(right * scale) or is_(unclipped * scale):
        raise Incorrect("The gradients are still multiplied by the scale when the step uses them.", ORDER, happened)
    if is_(right / scale) or is_(unclipped / scale):
        raise Incorrect(
            "The gradients are too small, by the scale: the backward pass started from the loss that was not scaled, "
            "or they were divided by the scale twice.",
            ORDER,
            happened,
            "`scaler.scale(loss).backward()`, and nothing but `scaler.unscale_(optimizer)` to divide them",
        )
    same(
        yours,
        right,
        "The gradient that the step uses (all in one row)",
        rtol=1e-2,
        atol=1e-3 * right.abs().max().item() + 1e-7,
        look=f"{ORDER}; {happened}",
    )


def _python_loss(value: Any, right: float, scale: float) -> float:
    """The returned loss as a Python number. Raises Incorrect for None, a tensor, and the scaled loss."""
    if value is None:
        raise Incorrect("Your function returned None.", "the loss as a Python number", look="`return` at its end")
    plain = plain_number(value)
    if plain is not None and scale != 1 and math.isclose(plain, right * scale, rel_tol=2e-3):
        raise Incorrect(
            "You return the scaled loss: nobody can read it, and it jumps whenever the scale changes.",
            f"{right:.4f}",
            f"{plain:.4f}",
            "keep the loss under its own name: `scaler.scale(loss).backward()`",
        )
    return number(value, "What you return")


# ---------------------------------------------------------------------------------------------------------------------


@exercise(
    "rescue_fp16",
    seconds=SLOW_START,
    title="Rescue a run",
    minutes=12,
    difficulty=4,
    points=4,
    takeaway="Weights in float32, layers in float16, a scale that finds its own size: it takes all three.",
    hints=(
        "Three things go wrong in the script: the weights are float16, gradients of small errors become zero, and a "
        "batch that overflows destroys everything. Which tool is for which?",
        "Autocast leaves the weights in float32. `torch.amp.GradScaler` lifts small gradients and skips the step when "
        "there are infinite ones. Make it once, before the loops.",
        "`scaler = torch.amp.GradScaler(device)` with the device's type, then in the loop "
        "`scaler.scale(loss).backward()`, `scaler.step(optimizer)`, `scaler.update()`.",
    ),
)
def rescue_fp16(answer: Any, new: Inputs) -> None:
    features, rows, count, epochs = new.size(5, 8), 2000, 8, new.size(5, 6)
    slopes = 2e-5 * new.randn(features) + 2e-5
    batches = []
    for _ in range(count):
        x = new.randn(rows, features)
        batches.append((x, (x @ slopes + 1e-5).unsqueeze(1)))
    clean = torch.cat([x for x, _ in batches[:2]]), torch.cat([y for _, y in batches[:2]])
    batches[new.size(3, count - 2)][0][new.size(0, rows - 1), 0] = 1e6  # the sensor's slip: inf in float16
    start = linear(new, features, 1)
    with torch.no_grad():
        start.weight.copy_(1.5 + new.rand(1, features))
        start.bias.fill_(1.0)
    model, gradients = nn.Sequential(copy.deepcopy(start)), []
    model[0].weight.register_hook(gradients.append)
    with computed_in(model) as seen, warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        try:
            call(answer, model, copy.deepcopy(batches), epochs, may_change=True, may_return_none=True)
        except AnswerRaised as raised:
            message = str(raised.error)
            if "prior to update" in message:
                _bare_step(["backward", "bare step", "update"])
            if "has already been called" in message:
                raise Incorrect(
                    "The scaler refuses: it has not been updated since the last step, or is asked twice in one step.",
                    ORDER,
                    message.splitlines()[0],
                    "`scaler.update()` after each `scaler.step(optimizer)`, and each call once",
                ) from None
            _explain_scaler(message, [])
            raise
    kept_float32(seen, model)
    if not seen:
        raise Incorrect("Nothing ever went through the model.", look="the loop over the batches")
    state = weights(model).float()
    disabled = any("GradScaler is enabled, but" in str(w.message) for w in warned)
    if not state.isfinite().all():
        if disabled:
            raise Incorrect(
                "Your scaler is for CUDA and switched itself off with a warning: the batch that overflows destroyed "
                "the weights.",
                "finite weights",
                "nan",
                "the first argument of `torch.amp.GradScaler` is the type of the device",
            )
        raise Incorrect(
            "The weights are nan: a batch that overflows float16 had infinite gradients, and a step went along with "
            "them.",
            "such a step is skipped",
            "nan in the weights",
            "`scaler.step(optimizer)` skips it; `optimizer.step()` does not",
        )
    if not set(seen) & set(HALF):
        raise Incorrect(
            "The layers compute in float32. That is one way out, but not the task: they are to stay in float16.",
            "layers in float16",
            "layers in float32",
            "`torch.autocast(x.device.type, dtype=torch.float16)` around the forward pass",
        )
    in_dtype(seen, torch.float16)
    if torch.equal(state, weights(nn.Sequential(start)).float()):
        raise Incorrect(
            "The weights are what they were: not one step was taken. A scale that starts large is halved after each "
            "overflow, and here every step seems to meet the first scale.",
            "weights that changed",
            "the weights from before",
            "make the scaler once, before the loops; and `scaler.update()` after each step",
        )
    if len(seen) < count - 1:  # one of them may be left out
        raise Incorrect(
            "The model met too few batches.",
            f"all {count}, in each of {epochs} epochs",
            f"{len(seen)} in all",
            "the two loops: is there a `return` or a `break` inside?",
        )
    error, spread = _error(model, *clean), clean[1].var().item()
    limit = 0.003 * spread  # the right way ends thousands of times below it
    if error > limit:
        if error > 1e3 * spread:
            raise Incorrect(
                "The run did not come near: the error is larger than at a glance at the mean of the targets.",
                f"a mean squared error below {limit:.1e}",
                f"{error:.1e}",
                "are most steps skipped, or far too long? The gradients must be without the scale when the step uses "
                "them",
            )
        if gradients and gradients[-1].any():
            raise Incorrect(
                "The run comes near, and not near enough, although its last gradients are not zero.",
                f"a mean squared error below {limit:.1e}",
                f"{error:.1e}",
                "is the loss in float32, as autocast makes it? In float16 it is too coarse for the last digits. "
                "Learning rate, epochs and batches stay as they are in the script",
            )
        raise Incorrect(
            "The run comes near and then stands still: the errors are so small that their gradients are zero in "
            "float16.",
            f"a mean squared error below {limit:.1e}",
            f"{error:.1e}",
            "scale the loss before `backward()`; and is the loss in float32, as autocast makes it?"
            + (" (your scaler switched itself off)" if disabled else ""),
        )


def _error(model: nn.Module, x: Tensor, y: Tensor) -> float:
    """Mean squared error in float32."""
    with torch.no_grad():
        return F.mse_loss(model(x), y).item()


# ---------------------------------------------------------------------------------------------------------------------


@exercise(
    "choose_dtype",
    title="Does it pay here?",
    minutes=6,
    difficulty=2,
    points=2,
    takeaway="A machine decides, not a rule: measure, look at the ranges, and switch only where they lie apart.",
    hints=(
        "Cross out first: what does not fit, and what is less accurate than float32. Then compare what is left.",
        "Two ranges (a, b) and (c, d) lie apart, the second above the first, when c > b.",
        "`pays = [d for d in table if fits(d) and not worse(d) and (table[d]['speed'][0] > table[torch.float32]"
        "['speed'][1] or not fits(torch.float32))]`; float32 itself only if that list is empty.",
    ),
)
def choose_dtype(answer: Any, new: Inputs) -> None:
    for table, memory, right, problem in _tables(new):
        yours = call(answer, table, memory)
        if yours == right and isinstance(yours, torch.dtype):
            continue
        if isinstance(yours, str):
            raise Incorrect("Your answer is a string.", f"one of the keys, {right}", repr(yours))
        if not isinstance(yours, torch.dtype) or yours not in table:
            raise Incorrect("Your answer is none of the keys of the table.", "a dtype", yours)
        rows = "; ".join(
            f"{short(dtype)}: speed {_range(row['speed'])}, accuracy {_range(row['accuracy'])}, {row['mib']} MiB"
            for dtype, row in table.items()
        )
        raise Incorrect(problem, str(right), str(yours), f"the table {rows}; memory {memory} MiB")


def _range(values: tuple[float, float]) -> str:
    return f"{values[0]:.4g} to {values[1]:.4g}"


def _tables(new: Inputs) -> Iterator[tuple[Table, int, torch.dtype, str]]:
    """Tables, the memory, the right choice, and what to say to any other."""
    f32, f16, b16 = torch.float32, torch.float16, torch.bfloat16
    base = float(new.size(2000, 9000))
    mib = 2 * new.size(300, 900)
    good = 0.9 + new.rand(1).item() / 20

    def speed(low: float, high: float) -> tuple[float, float]:
        return round(base * low, 1), round(base * high, 1)

    def accuracy(low: float, high: float) -> tuple[float, float]:
        return round(good + low / 1000, 5), round(good + high / 1000, 5)

    def row(speeds: tuple[float, float], accuracies: tuple[float, float], share: float) -> Row:
        return {"speed": speed(*speeds), "accuracy": accuracy(*accuracies), "mib": int(mib * share)}

    def table(**rows: Row) -> Table:
        """float32 and the others, in any order."""
        full = [(f32, row((0.95, 1.05), (-3, 3), 1.0)), *((getattr(torch, name), r) for name, r in rows.items())]
        return {full[i][0]: full[i][1] for i in new.permutation(len(full)).tolist()}

    other = new.pick(("float16", "bfloat16"))
    dtype = getattr(torch, other)
    enough = 2 * mib
    yield (
        table(**{other: row((0.1, 0.12), (-2, 2), 0.6)}),
        enough,
        f32,
        f"{other} is slower on this machine, and all formats fit: memory that is free need not be saved.",
    )
    yield (
        table(**{other: row((1.6, 1.8), (-2, 4), 0.6)}),
        enough,
        dtype,
        f"{other} fits, is faster beyond doubt, and its accuracy lies in the same range: it pays.",
    )
    yield (
        table(**{other: row((1.6, 1.8), (-5, 0.5), 0.6)}),
        enough,
        dtype,
        "The ranges of accuracy overlap: these runs show no difference, even if one middle lies a little lower.",
    )
    yield (
        table(**{other: row((1.0, 1.4), (-3, 3), 0.6)}),
        enough,
        f32,
        "The ranges of speed overlap: the difference may be chance, so there is no reason to switch.",
    )
    touching = table(**{other: row((1.05, 1.4), (-3, 3), 0.6)})
    yield touching, enough, f32, "The ranges of speed touch: only ranges that lie apart are beyond doubt."
    touching = table(**{other: row((1.6, 1.8), (-6, -3), 0.6)})
    yield touching, enough, dtype, "The ranges of accuracy touch: only one that lies entirely below is worse."
    yield (
        table(**{other: row((1.6, 1.8), (-12, -5), 0.6)}),
        enough,
        f32,
        f"{other} is faster, but every one of its runs is less accurate than every one in float32.",
    )
    yield (
        table(**{other: row((1.6, 1.8), (5, 9), 0.6)}),
        enough,
        dtype,
        f"{other} is more accurate in all runs. Only being worse is a reason against it.",
    )
    yield (
        table(float16=row((2.0, 2.2), (-3, 3), 0.7), bfloat16=row((1.5, 1.7), (-3, 3), 0.55)),
        int(mib * 0.6),
        b16,
        "What needs more memory than there is cannot run, however fast it was elsewhere. And what fits may replace a "
        "float32 that does not.",
    )
    yield (
        table(**{other: row((0.5, 0.6), (-3, 3), 0.6)}),
        int(mib * 0.8),
        dtype,
        f"float32 does not fit into the memory here, so {other} replaces it, even though it is slower.",
    )
    yield (
        table(**{other: row((0.5, 0.6), (-3, 3), 0.6)}),
        mib,
        f32,
        "float32 fits: needing exactly as much memory as there is, is allowed. And it is the faster one.",
    )
    yield (
        table(float16=row((0.7, 0.8), (-12, -5), 0.5), bfloat16=row((0.5, 0.6), (-3, 3), 0.6)),
        int(mib * 0.8),
        b16,
        "Less accurate than float32 is out, also where float32 itself does not fit.",
    )
    yield (
        table(float16=row((1.5, 2.6), (-2, 3), 0.6), bfloat16=row((1.7, 1.9), (-3, 1), 0.7)),
        enough,
        b16,
        "Both pay. Take the one whose slowest run is the faster one: that is what you can count on.",
    )
    yield (
        table(float16=row((2.2, 2.4), (-12, -5), 0.6), bfloat16=row((1.2, 1.5), (-3, 3), 0.6)),
        enough,
        b16,
        "The fastest one is less accurate and falls out; the other one still pays.",
    )
    yield (
        table(float16=row((1.3, 1.4), (-2, 2), 0.6), bfloat16=row((0.1, 0.2), (-3, 3), 0.6)),
        enough,
        f16,
        "One of the two is slow here, the other pays: the two half formats are not equally fast everywhere.",
    )


# ---------------------------------------------------------------------------------------------------------------------


@exercise(
    "own_scaler",
    seconds=SLOW_START,
    title="A scaler of your own",
    minutes=12,
    difficulty=4,
    points=4,
    takeaway="Dynamic scaling is a search without end: double until it overflows, halve, skip one step, go on.",
    hints=(
        "Scale the loss, backward, divide the gradients by the same scale. Then one question decides everything: are "
        "*all* gradients finite?",
        "Finite: step, and one more good step in the row; at growth_interval double the scale and begin to count anew. "
        "Not finite: no step, halve the scale, begin to count anew.",
        "`good = all(p.grad.isfinite().all() for p in parameters if p.grad is not None)`; the parameters are in "
        '`group["params"] for group in optimizer.param_groups`.',
    ),
)
def own_scaler(answer: Any, new: Inputs) -> None:
    interval = new.size(3, 4)
    sizes = [(new.size(2, 4), 3), (new.size(2, 5),), (3,), (2,)]
    start = [new.randn(*size) for size in sizes]
    # How large the gradients are before scaling. float16 ends at 65504, so the scale decides which of them overflow.
    easy, hard = 0.5, 3.0e3
    kinds = ["easy"] * (2 * interval) + ["one", "both"] + ["easy"] * (interval - 1) + ["one"]
    kinds += ["easy"] * (interval + 1) + ["nan"] + ["easy"] * interval
    noise = [[new.rand(*size) + 0.5 for size in sizes[:2]] for _ in kinds]

    def run(step: Callable, count: int = len(kinds)) -> tuple[list[float], Tensor, list[Any]]:
        """The scale after each step, the weights after the last one, and what each step returned."""
        # The third gets no gradient at all; that of the fourth is float32, and scaled it is beyond float16, but finite.
        first, second, third, fourth = parameters = [nn.Parameter(value.clone()) for value in start]
        groups = [{"params": [first, third]}, {"params": [second], "lr": 0.05}, {"params": [fourth], "lr": 1e-5}]
        optimizer = torch.optim.SGD(groups, lr=0.1)
        state, scales, returned = {"scale": 2.0**10, "good": 0}, [], []
        for kind, (one, other) in zip(kinds[:count], noise, strict=False):
            optimizer.zero_grad()
            sizes = (hard if kind == "both" else easy), (hard if kind in ("one", "both") else easy)
            loss = sum(
                (parameter.half() * (factors * size).half()).float().sum()
                for parameter, factors, size in zip((first, second), (one, other), sizes, strict=True)
            )
            loss = loss + 300 * fourth.sum()
            if kind == "nan":  # the derivative of 0 · second · inf
                loss = loss + (second * 0.0).sum() * math.inf
            returned.append(step(loss, optimizer, state, interval))
            scales.append(state.get("scale"))
        return scales, torch.cat([p.detach().flatten() for p in parameters]), returned

    official: list[torch.amp.GradScaler] = []

    def reference(loss: Tensor, optimizer: Any, state: dict, interval: int) -> bool:
        if not official:
            official.append(torch.amp.GradScaler("cpu", init_scale=state["scale"], growth_interval=interval))
        scaler = official[0]
        before = scaler.get_scale()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        state["scale"] = scaler.get_scale()
        return state["scale"] >= before

    def variant(wrong: str = "") -> Callable:
        return lambda *given: _scaled_by_hand(*given, wrong)

    scales, trained, stepped = run(reference)

    def yours(loss: Tensor, optimizer: Any, state: dict, interval: int) -> Any:
        result = call(answer, loss, optimizer, state, interval, may_change=True, may_return_none=True)
        scale = state.get("scale")
        if isinstance(scale, Tensor) and scale.numel() == 1:
            state["scale"] = scale = scale.item()
        if isinstance(scale, bool) or not isinstance(scale, (int, float)):
            raise Incorrect('`state["scale"]` is no longer a number.', "a Python float", scale)
        return result

    got, ended, returned = run(yours)
    # The gradients of the first steps say whether the step itself is right; the scales then say whether the rule is.
    first = run(variant(), 1)[1]
    after_one = run(yours, 1)[1]
    begin = torch.cat([value.flatten() for value in start])
    if torch.equal(after_one, begin):
        raise Incorrect(
            "The weights are what they were after a step with fine gradients.",
            "`loss` scaled, backward, gradients divided by the scale, `optimizer.step()`",
            look="is the step skipped although all gradients are finite? A parameter without a gradient is fine, and a "
            "gradient in float32 may lie beyond 65504",
        )
    mistake(
        after_one,
        run(variant("scaled_step"), 1)[1],
        "Your step uses gradients that are still multiplied by the scale.",
        "divide every `.grad` by the scale before `optimizer.step()`",
    )
    mistake(
        after_one,
        run(variant("unscaled_loss"), 1)[1],
        "The gradients are divided by the scale, but the loss was never multiplied by it.",
        "`(loss * scale).backward()`",
    )
    same(after_one, first, "The weights after one of your steps (all in one row)", rtol=1e-3, atol=1e-5)
    if not ended.isfinite().all():
        only = run(variant("inf_only"))
        if torch.equal(ended.isnan(), only[1].isnan()) and got == only[0]:
            raise Incorrect(
                "A gradient of nan went into the weights: you look for inf alone.",
                "neither inf nor nan",
                look="`isfinite()` knows both",
            )
        if got == run(variant("by_loss"))[0]:
            raise Incorrect(
                "Infinite gradients went into the weights: you look at the loss, which can be finite "
                "when they are not.",
                "no step when one gradient is not finite",
                look="the gradients, after `backward()`",
            )
        if got == run(variant("first_only"))[0]:
            raise Incorrect(
                "Infinite gradients went into the weights: you looked only at some of the parameters.",
                "no step when *one* gradient is not finite",
                look="all groups of `optimizer.param_groups`, all parameters in each",
            )
        raise Incorrect(
            "Infinite gradients went into the weights.",
            "such a step is skipped",
            "nan",
            "`isfinite()` of every `.grad`",
        )
    for wrong, problem, look in (
        ("no_growth", "Your scale never grows.", "double it after growth_interval good steps in a row"),
        ("no_backoff", "Your scale does not shrink after an overflow.", "halve it when a step is skipped"),
        (
            "good_after_bad",
            "After an overflow the count of good steps has to begin anew: they are counted in a row.",
            '`state["good"] = 0` when a step is skipped',
        ),
        (
            "good_runs_on",
            "After growing the count of good steps has to begin anew; your scale grows with every further step.",
            '`state["good"] = 0` when the scale has grown',
        ),
        (
            "one_late",
            "Your scale grows one step too late: after growth_interval good steps, this one included.",
            "count first, then compare; or `>=` instead of `>`",
        ),
        ("one_early", "Your scale grows one step too early.", "growth_interval good steps, this one included"),
        (
            "bad_counts",
            "Skipped steps count as good ones in your function.",
            "only a step that was taken counts",
        ),
        (
            "halves_each",
            "You halve the scale once for each parameter that overflows; it is halved once for each step.",
            "decide after the loop over the parameters",
        ),
    ):
        if got == run(variant(wrong))[0] and got != scales:
            raise Incorrect(problem, _row(scales), _row(got), look)
    if got != scales:
        at = next(i for i, (a, b) in enumerate(zip(got, scales, strict=True)) if a != b)
        was = "not finite" if not stepped[at] else "finite"
        raise Incorrect(
            f"Your scale is not that of `torch.amp.GradScaler` after step {at + 1}, whose gradients were {was}.",
            _row(scales),
            _row(got),
            f"growth_interval is {interval}; the scale was {_row(scales[at - 1 : at]) if at else '1024'} before",
        )
    mistake(
        ended,
        run(variant("single"))[1],
        "You leave out only the parameters whose gradients overflow. Then the others step alone, in a direction that "
        "is not the gradient: skip the whole step.",
        "one decision for all parameters",
    )
    mistake(
        ended,
        run(variant("new_scale"))[1],
        "The gradients are divided by the scale after it has changed: they were multiplied by the old one.",
        "first unscale and step, then change the scale",
    )
    same(ended, trained, "The weights after all steps (in one row)", rtol=1e-3, atol=1e-4)
    flags = [bool(v) if isinstance(v, Tensor) and v.numel() == 1 else v for v in returned]
    if all(value is None for value in flags):
        raise Incorrect("Your function returned None.", "True if the step was taken, else False", look="`return`")
    if flags == [not value for value in stepped]:
        raise Incorrect("What you return is the wrong way round.", "True if the step was taken", "True if skipped")
    if flags != stepped:
        raise Incorrect("What you return is not right.", "True if the step was taken, else False", returned[-1])


def _row(values: list[float]) -> str:
    return ", ".join(f"{value:g}" for value in values)


def _scaled_by_hand(loss: Tensor, optimizer: torch.optim.Optimizer, state: dict, interval: int, wrong: str) -> bool:
    """The right step when `wrong` is empty; else the step with that mistake in it."""
    scale, good = state["scale"], state["good"]
    scaled = loss if wrong == "unscaled_loss" else loss * scale
    scaled.backward()
    having = [p for group in optimizer.param_groups for p in group["params"] if p.grad is not None]
    bad = [p for p in having if (p.grad.isinf().any() if wrong == "inf_only" else not p.grad.isfinite().all())]
    fine = not bad
    if wrong == "by_loss":
        fine = bool(scaled.isfinite())
    if wrong == "first_only":
        fine = bool(having[0].grad.isfinite().all())
    if fine or wrong == "bad_counts":
        good += 1
    elif wrong != "good_after_bad":
        good = 0
    if not fine and wrong != "no_backoff":
        state["scale"] /= 2 ** (len(bad) if wrong == "halves_each" else 1)
    if good >= interval + {"one_late": 1, "one_early": -1}.get(wrong, 0) and wrong != "no_growth":
        state["scale"] *= 2
        good = good if wrong == "good_runs_on" else 0
    state["good"] = good
    for p in having:
        if wrong != "scaled_step":
            p.grad.div_(state["scale"] if wrong == "new_scale" else scale)
    if wrong == "single":
        for p in bad:
            p.grad = None
    if fine or wrong == "single":
        optimizer.step()
    return fine
