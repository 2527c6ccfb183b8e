"""The exercises of chapter 12: a model that exports, its preprocessing inside, int8 by rows, operators, same answers.

What an answer exports, registers or compiles stays where the answer is; what comes back are tensors, sizes and errors.
"""

import contextlib
import copy
import io
import logging
import os
import re
import tempfile
import traceback
import uuid
import warnings
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from labcheck.answer import attempted, call, is_students
from labcheck.inputs import Inputs
from labcheck.show import show
from labcheck.verdict import NotHere
from torchcourse.errors import CourseError
from torchcourse.lectures import tracefile
from torchcourse_labs._spec import Mistake, Spec, changed, chapter, says  # noqa: F401 - for the tables
from torchcourse_labs.beyond_python import _native as native

SECONDS = 60.0  # for a check that exports, traces or compiles: the first one imports much of PyTorch

EXERCISES = ()  # declared below

exercise = chapter("12_beyond_python")
Found = dict[str, Any]


def _instead(yours: Any, *_: Any) -> bool:
    return "instead" in yours


# ---------------------------------------------------------------------------------------------------------------------
# exportable


class _Scanner(nn.Module):
    """The module that the lab gives."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.hidden, self.out = nn.Linear(12 * 12, width), nn.Linear(width, 10)

    def forward(self, images: Tensor) -> Tensor:
        if images.mean() > 0.5:
            images = 1 - images
        rows = []
        for image in images:
            if image.max() > 0:
                image = image / image.max()
            rows.append(image)
        x = torch.stack(rows).reshape(len(images), -1)
        return self.out(F.relu(self.hidden(x)))


class _Exportable(_Scanner):
    def forward(self, images: Tensor) -> Tensor:
        images = torch.where(images.mean() > 0.5, 1 - images, images)
        largest = images.amax(dim=(1, 2, 3), keepdim=True)
        images = images / torch.where(largest > 0, largest, 1.0)
        x = images.flatten(1)
        return self.out(F.relu(self.hidden(x)))


class _ByCond(_Exportable):
    def forward(self, images: Tensor) -> Tensor:
        white = images.mean() > 0.5
        return super().forward(torch.cond(white, lambda x: 1 - x, lambda x: x.clone(), (images,)))


class _ByArithmetic(_Scanner):
    def forward(self, images: Tensor) -> Tensor:
        white = (images.mean() > 0.5).float()
        images = white + (1 - 2 * white) * images
        x = images.reshape(images.shape[0], -1)
        x = x / x.max(dim=1, keepdim=True).values.clamp(min=1e-12)
        return self.out(self.hidden(x).clamp(min=0))


class _Alone(nn.Module):
    """Not derived, with layers in another order."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.out = nn.Linear(width, 10)
        self.hidden = nn.Linear(144, width)

    def forward(self, images: Tensor) -> Tensor:
        return _Exportable.forward(self, images)


class _OtherLayers(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Flatten(), nn.Linear(144, width), nn.ReLU(), nn.Linear(width, 10))

    def forward(self, images: Tensor) -> Tensor:
        return self.layers(images)


_WHITE, _LARGE = "images.mean() > 0.5", "images.amax(dim=(1, 2, 3), keepdim=True)"


def _quietly() -> contextlib.ExitStack:
    """Without what PyTorch prints, warns of and logs when an export or a file fails."""
    stack = contextlib.ExitStack()
    stack.enter_context(warnings.catch_warnings(action="ignore"))
    stack.enter_context(contextlib.redirect_stderr(io.StringIO()))
    stack.enter_context(contextlib.redirect_stdout(io.StringIO()))
    for name in ("torch.export", "torch.fx.experimental.symbolic_shapes", "torch._library"):
        log = logging.getLogger(name)
        stack.callback(log.setLevel, log.level)
        log.setLevel(logging.CRITICAL)
    return stack


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


def _students_line(error: BaseException) -> str:
    """The line of the model that an export says it failed in."""
    found = re.findall(r'File "[^"]*", line \d+, in \w+\n +(.*)', str(error).partition("raised this error")[2])
    if found:
        return found[-1].strip()
    own = [frame for frame in traceback.extract_tb(error.__traceback__) if is_students(frame.filename)]
    return (own[-1].line or "").strip() if own else ""


def _exported(answer: Callable, width: int, weights: dict[str, Tensor], batches: list[Tensor]) -> Found:
    """What a model computes for each batch, and what its exported program computes, exported with the first one."""
    attempted(answer)
    if isinstance(answer, nn.Module):
        return {"object": type(answer).__name__}
    with _quietly():
        model = call(answer, width, may_change=True)
        if not isinstance(model, nn.Module):
            return {"instead": model}
        shapes = {name: tuple(value.shape) for name, value in model.state_dict().items()}
        if shapes != {name: tuple(value.shape) for name, value in weights.items()}:
            return {"parameters": sorted(shapes)}
        model.load_state_dict(weights)
        model.eval()
        eager = [call(model, batch.clone(), may_change=True, may_return_none=True) for batch in batches]
        found: Found = {"eager": [each.detach() if isinstance(each, Tensor) else each for each in eager], "line": ""}
        try:
            dynamic = ({0: torch.export.Dim("batch")},)
            program = torch.export.export(model, (batches[0].clone(),), dynamic_shapes=dynamic).module()
        except Exception as error:
            return found | {"refused": str(error)[:5000], "line": _students_line(error)}
        found["program"] = []
        for batch in batches:
            try:
                with torch.no_grad():
                    found["program"].append(program(batch.clone()))
            except Exception as error:
                found["program"].append(_first_line(error))
    return found


def _scanned(ask: Any, width: int, weights: dict[str, Tensor], batches: list[Tensor]) -> Found:
    seen = ask.observe(_exported, width, weights, batches)
    if "eager" not in seen:
        return seen
    found = dict(seen)
    for i, batch in enumerate(batches):
        kind = "light" if batch.mean() > 0.5 else "dark"
        found[f"The result for a {kind} batch of {len(batch)}"] = seen["eager"][i]
    found["An exported program"] = "program" in seen
    for i, batch in enumerate(batches):
        kind = "light" if batch.mean() > 0.5 else "dark"
        program = seen["program"][i] if "program" in seen else None
        found[f"The exported program's result for a {kind} batch of {len(batch)}"] = program
    return found


def _scans(new: Inputs) -> list[tuple[int, dict[str, Tensor], list[Tensor]]]:
    """Dark and light batches with an empty page, a single image, and in each batch one image of the other kind; a faint
    page among dark ones."""
    width = new.size(4, 9)
    shapes = {"hidden.weight": (width, 144), "hidden.bias": (width,), "out.weight": (10, width), "out.bias": (10,)}
    weights = {name: new.randn(*shape) * 0.3 for name, shape in shapes.items()}
    batches = []
    for size, light in ((3, False), (2, True), (1, False), (1, True), (7, True), (8, False), (20, True)):
        images = new.rand(size, 1, 12, 12) * (0.25 + 0.25 * new.rand(size, 1, 1, 1))
        if size > 6:
            images[2] = 1 - images[2] * 0.3  # a light page among dark ones
            images[4] = 0  # an empty page
        if size == 8:
            images[5] *= 0.0015  # a faint page, with less than one gray value of 255
        batches.append(1 - images if light else images)
    return [(width, weights, batches)]


def _computes(*classes: type) -> Callable:
    """The model's own results are those of a wrong class, exported or not."""

    def when(yours: Found, expected: Found, width: int, weights: dict[str, Tensor], batches: list[Tensor]) -> bool:
        def same(results: list[Any]) -> bool:
            pairs = zip(yours["eager"], results, strict=True)
            return all(a.shape == b.shape and torch.allclose(a, b, 1e-4, 1e-5, equal_nan=True) for a, b in pairs)

        def of(kind: type) -> list[Tensor]:
            model = kind(width).eval()
            model.load_state_dict(weights)
            with torch.no_grad():
                return [model(batch) for batch in batches]

        return not same(expected["eager"]) and any(same(of(kind)) for kind in classes)

    return when


def _refused(*words: str) -> Callable:
    """The model itself is right, and its export raises an error with one of these words."""

    def when(yours: Found, expected: Found, *_: Any) -> bool:
        pairs = zip(yours["eager"], expected["eager"], strict=True)
        return all(torch.allclose(*pair, 1e-4, 1e-5) for pair in pairs) and any(w in yours["refused"] for w in words)

    return when


_scanning = lambda *places: changed(_Exportable, *places)  # noqa: E731
_WRONG_SCANS: dict[str, list[type]] = {
    "You decide image by image whether to invert. The original decides once for the whole batch, by the mean of all "
    "its pixels.": [_scanning(("images.mean()", "images.mean(dim=(1, 2, 3), keepdim=True)"))],
    "Your batches are never inverted. If the mean of a batch is above 0.5, swap black and white.": [
        _scanning((f"torch.where({_WHITE}, 1 - images, images)", "images")),
    ],
    "You invert every batch; the original does it only if the mean is above 0.5.": [
        _scanning((f"torch.where({_WHITE}, 1 - images, images)", "1 - images")),
    ],
    "You swapped the two cases: a batch is inverted if its mean is above 0.5.": [
        _scanning(("1 - images, images)", "images, 1 - images)")),
        _scanning(("> 0.5", "<= 0.5")),
    ],
    "An empty page gives nan: it is divided by its largest value, which is 0. The original leaves such a page alone.": [
        _scanning(("torch.where(largest > 0, largest, 1.0)", "largest")),
    ],
    "You add a small number to every divisor, which changes all results. Only an empty page needs a divisor other than "
    "its largest value.": [
        _scanning(("torch.where(largest > 0, largest, 1.0)", f"(largest + {small})")) for small in (1e-3, 1e-2, 0.1, 1)
    ],
    "You divide faint pages by more than their largest value, or not at all. Only an empty page needs a divisor other "
    "than its largest value.": [
        _scanning(("torch.where(largest > 0, largest, 1.0)", divisor))
        for floor in ("1e-3", "1 / 255", "1e-2")
        for divisor in (f"largest.clamp(min={floor})", f"torch.where(largest > {floor}, largest, 1.0)")
    ],
    "You divide all images by the largest value of the batch; each image has its own.": [
        _scanning((_LARGE, "images.max()")),
        _scanning((_LARGE, "images.amax()")),
    ],
    "You divide by the largest value before you invert. First invert the batch, then divide each image.": [
        _scanning(
            (
                f"images = torch.where({_WHITE}, 1 - images, images)\n        largest = {_LARGE}",
                f"largest = {_LARGE}\n        images = torch.where({_WHITE}, 1 - images, images)",
            )
        ),
        _scanning(
            (
                f"images = torch.where({_WHITE}, 1 - images, images)\n        largest = {_LARGE}",
                f"white, largest = {_WHITE}, {_LARGE}",
            ),
            ("x = images", "x = torch.where(white, 1 - images, images)"),
        ),
        _scanning(
            (f"images = torch.where({_WHITE}, 1 - images, images)\n        largest", "largest"),
            ("x = images", f"x = torch.where({_WHITE}, 1 - images, images)"),
        ),
    ],
    "You divide each row of pixels by a largest value of its own; an image has only one.": [
        _scanning((_LARGE, f"images.amax(dim={axis}, keepdim=True)")) for axis in (2, 3)
    ],
    "You take the largest value of each pixel over the batch. Take it over the pixels of each image.": [
        _scanning((_LARGE, "images.amax(dim=0, keepdim=True)")),
        _scanning((_LARGE, "images.amax(dim=(0, 1), keepdim=True)")),
    ],
    "You subtract the smallest value of each image as well. The original only divides by the largest.": [
        _scanning(
            (f"largest = {_LARGE}", f"low = {_LARGE.replace('amax', 'amin')}\n        largest = {_LARGE} - low"),
            ("images / torch", "(images - low) / torch"),
        ),
        _scanning((f"largest = {_LARGE}", f"images = images - {_LARGE.replace('amax', 'amin')}; largest = {_LARGE}")),
    ],
    "You swapped the two cases: a page that isn't empty is divided by its largest value, an empty one stays as it "
    "is.": [
        _scanning(("torch.where(largest > 0, largest, 1.0)", "torch.where(largest > 0, 1.0, largest)")),
    ],
    "An empty page should stay as it is: 0 everywhere. Yours has other values.": [
        _scanning(
            (
                "images / torch.where(largest > 0, largest, 1.0)",
                f"torch.where(largest > 0, images / largest, {value})",
            )
        )
        for value in ("1.0", "0.5")
    ],
    "Your model ends in a softmax. The original returns logits.": [
        _scanning(("self.out(F.relu(self.hidden(x)))", "self.out(F.relu(self.hidden(x))).softmax(1)")),
        _scanning(("self.out(F.relu(self.hidden(x)))", "self.out(F.relu(self.hidden(x))).log_softmax(1)")),
    ],
    "Your images are not divided by their largest values.": [
        _scanning(("images / torch.where(largest > 0, largest, 1.0)", "images")),
    ],
    "The ReLU between the two layers is missing.": [_scanning(("F.relu(self.hidden(x))", "self.hidden(x)"))],
}

exercise(
    "exportable",
    seconds=SECONDS,
    title="A model that can be exported",
    minutes=10,
    difficulty=3,
    points=3,
    takeaway="What Python decides is decided once, during export. What tensors decide stays in the graph.",
    hints=(
        "In three places, Python looks at pixels or counts images: two `if`s and a loop. Write each with tensors.",
        "In `torch.where(condition, a, b)`, the condition can have one element in all, or one for each image. "
        "`images.amax(dim=(1, 2, 3), keepdim=True)` has the largest value of each image.",
        "Make the divisor safe before you divide: `torch.where(largest > 0, largest, 1.0)`. `images.flatten(1)` "
        "needs no batch size.",
    ),
    spec=Spec(
        draw=_scans,
        solution=_Exportable,
        measure=_scanned,
        mistakes=[
            """
            lambda width: _Exportable(width).forward
                Your class should be an `nn.Module`; it made {yours[instead]}.
                when: _instead
            nn.Identity()
                Give the check your class, not an object of it: it makes models of several widths.
                look: `check("exportable", Exportable)`
                when: "object" in yours
            _OtherLayers
                The parameters should be those of `Scanner`, so that its weights fit. Yours are {yours[parameters]}.
                when: "parameters" in yours
            """,
            *(Mistake(sentence, *kinds, when=_computes(*kinds)) for sentence, kinds in _WRONG_SCANS.items()),
            """
            _Scanner
            torch.where(images.mean() > 0.5, 1 - images, images) → 1 - images if images.mean() > 0.5 else images
                    || images if images.mean().item() < .5 else 1 - images
                Your model computes the right thing, but it can't be exported: `{yours[line]}` depends on pixels, and
                during export there are none.
                look: `torch.where` decides inside the graph
                when: _refused("data-dependent")
            images.flatten(1) → images.reshape(len(images), -1) || images.view(int(images.shape[0]), -1)
                    || torch.stack([image.flatten() for image in images])
                Your model computes the right thing, but the batch size is a constant in its graph. A loop over images,
                `len(images)` and `int(...)` make it one.
                look: operations on the whole batch; `images.shape[0]` stays a symbol, and `flatten(1)` needs no size
                when: _refused("specialized", "constant")
            images.flatten(1) → torch.from_numpy(images.numpy()).flatten(1)
                Your model computes the right thing, but it can't be exported. PyTorch says at `{yours[line]}`:
                {yours[refused]}
                when: _refused("")
            """,
        ],
        also_right=[_ByCond, _ByArithmetic, _Alone],
    ),
)


# ---------------------------------------------------------------------------------------------------------------------
# with_preprocessing


class _Reader(nn.Module):
    def __init__(self, net: nn.Module, mean: tuple, std: tuple) -> None:
        super().__init__()
        self.net = net
        self.register_buffer("mean", torch.tensor(mean).view(-1, 1, 1))
        self.register_buffer("std", torch.tensor(std).view(-1, 1, 1))

    def forward(self, images: Tensor) -> Tensor:
        return self.net((images.float() / 255 - self.mean) / self.std)


def _write_reader(net: nn.Module, mean: tuple, std: tuple, images: Tensor, path: str) -> None:
    reader = _Reader(net, mean, std).eval()
    example = torch.zeros_like(images[:2])
    dynamic = ({0: torch.export.Dim("batch")},)
    program = torch.export.export(reader, (example,), dynamic_shapes=dynamic)
    torch.export.save(program, path)


class _TorchvisionStyle(nn.Module):
    """Plain tensors instead of buffers; export keeps them as constants."""

    def __init__(self, net: nn.Module, mean: tuple, std: tuple) -> None:
        super().__init__()
        self.net = net
        self.scale = 1 / (255 * torch.tensor(std).reshape(1, -1, 1, 1))
        self.shift = -torch.tensor(mean).reshape(1, -1, 1, 1) / torch.tensor(std).reshape(1, -1, 1, 1)

    def forward(self, images: Tensor) -> Tensor:
        return self.net(images.to(torch.float32) * self.scale + self.shift)


LIMIT = 100_000  # bytes of a file


def _written(answer: Callable, net: nn.Module, mean: tuple, std: tuple, images: Tensor, batches: list) -> Found:
    """The size of the file that the answer writes, and what the program in it does with each batch, once or twice."""
    attempted(answer)
    with tempfile.TemporaryDirectory() as folder, _quietly():
        path = os.path.join(folder, "reader.pt2")
        call(answer, net, mean, std, images, path, may_return_none=True)
        if not os.path.exists(path):
            return {"files": sorted(os.listdir(folder))}
        found: Found = {"bytes": os.path.getsize(path)}
        try:
            program = torch.export.load(path).module()
        except Exception as error:
            return found | {"unreadable": _first_line(error)}
        found["refused"], found["logits"] = {}, []
        for batch in batches:
            try:
                with torch.no_grad():
                    found["logits"].append(program(batch.clone()))
                    found["random"] = not torch.equal(program(batch.clone()), found["logits"][-1])
            except Exception as error:
                found["logits"].append(None)
                found["refused"][len(batch)] = _first_line(error)
    return found


def _read_back(ask: Any, net: nn.Module, mean: tuple, std: tuple, images: Tensor, batches: list) -> Found:
    seen = ask.observe(_written, net, mean, std, images, batches)
    found = dict(seen)
    if "logits" in seen:
        for batch, logits in zip(batches, seen["logits"], strict=True):
            found[f"The result for {len(batch)} images"] = logits
        found["sizes"] = ", ".join(map(str, seen["refused"]))
        found["why"] = next(iter(seen["refused"].values()), "")
        found["A file without your images"] = seen["bytes"] < LIMIT
    return found


def _nets(new: Inputs) -> list[tuple]:
    found = []
    for channels in (3, 1):
        height, width, classes = new.sizes(3, 8, 16)
        sides = (height - 3) // 2 + 1, (width - 3) // 2 + 1
        norm = nn.BatchNorm2d(4)
        first, last = nn.Conv2d(channels, 4, 3, stride=2), nn.Linear(4 * sides[0] * sides[1], classes)
        net = nn.Sequential(first, norm, nn.ReLU(), nn.Flatten(), nn.Dropout(0.4), last)
        with torch.no_grad():
            for parameter in net.parameters():
                parameter.copy_(new.randn(*parameter.shape) * 0.3)
            norm.running_mean.copy_(new.randn(4))
            norm.running_var.copy_(new.rand(4) + 0.5)
        mean = tuple((0.2 + 0.5 * new.rand(channels)).tolist())
        std = tuple((0.15 + 0.2 * new.rand(channels)).tolist())
        images = new.images(240_000 // (channels * height * width), channels, height, width)
        batches = [new.images(size, channels, height, width) for size in (2, 1, 7, 100)]
        found.append((net, mean, std, images, batches))
    return found


def _normalizes(*prepare: Callable[[Tensor, Tensor, Tensor], Tensor]) -> Callable:
    """The logits are those of a wrong preparation."""

    def when(
        yours: Found, expected: Found, net: nn.Module, mean: tuple, std: tuple, images: Any, batches: list
    ) -> bool:
        m, s = torch.tensor(mean).view(-1, 1, 1), torch.tensor(std).view(-1, 1, 1)
        net = copy.deepcopy(net).eval()

        def same(prepared: Callable) -> bool:
            with torch.no_grad():
                pairs = [
                    (mine, net(prepared(batch, m, s))) for mine, batch in zip(yours["logits"], batches, strict=True)
                ]
            return all(torch.allclose(mine, other, 1e-4, 1e-4) for mine, other in pairs)

        right = same(lambda x, m, s: (x.float() / 255 - m) / s)
        return not right and any(same(prepared) for prepared in prepare)

    return when


_writing = lambda *places: changed(_write_reader, *places)  # noqa: E731


def _prepared(code: str) -> Callable:
    """An answer whose program prepares images in another way."""
    kind = changed(_Reader, ("(images.float() / 255 - self.mean) / self.std", code))

    def write(net: nn.Module, mean: tuple, std: tuple, images: Tensor, path: str) -> None:
        program = torch.export.export(
            kind(net, mean, std).eval(),
            (torch.zeros_like(images[:2]),),
            dynamic_shapes=({0: torch.export.Dim.AUTO},),
        )
        torch.export.save(program, path)

    return write


def _saved_with_torch(net: nn.Module, mean: tuple, std: tuple, images: Tensor, path: str) -> None:
    torch.save(_Reader(net, mean, std).eval().state_dict(), path)


def _saved_elsewhere(net: nn.Module, mean: tuple, std: tuple, images: Tensor, path: str) -> None:
    _write_reader(net, mean, std, images, path.replace("reader", "model"))


def _net_alone(net: nn.Module, mean: tuple, std: tuple, images: Tensor, path: str) -> None:
    dynamic = ({0: torch.export.Dim("batch")},)
    torch.export.save(torch.export.export(net.eval(), (images[:2].float(),), dynamic_shapes=dynamic), path)


_PREPARATIONS: dict[str, list[tuple[str, Callable]]] = {
    "Your program doesn't divide by 255: mean and std are for pixels from 0 to 1.": [
        ("(images.float() - self.mean) / self.std", lambda x, m, s: (x.float() - m) / s),
    ],
    "Your program divides by 256. The largest pixel value is 255, and has to become 1.": [
        ("(images.float() / 256 - self.mean) / self.std", lambda x, m, s: (x.float() / 256 - m) / s),
    ],
    "Your program scales the pixels to 0 to 1, but it doesn't normalize them with mean and std.": [
        ("images.float() / 255", lambda x, m, s: x.float() / 255),
    ],
    "Your program only turns the pixels into floats. Also divide by 255, subtract the mean, and divide by std.": [
        ("images.float()", lambda x, m, s: x.float()),
    ],
    "Your program subtracts the mean, but it doesn't divide by std.": [
        ("images.float() / 255 - self.mean", lambda x, m, s: x.float() / 255 - m),
    ],
    "Your program multiplies by std; normalizing divides by it.": [
        ("(images.float() / 255 - self.mean) * self.std", lambda x, m, s: (x.float() / 255 - m) * s),
    ],
    "Your program subtracts the mean before it divides by 255: mean and std are for pixels from 0 to 1.": [
        ("(images.float() - self.mean) / 255 / self.std", lambda x, m, s: (x.float() - m) / 255 / s),
    ],
    "Your program rounds the pixels to whole numbers after dividing by 255: only 0 and 1 are left. First make "
    "floats.": [
        ("((images // 255) - self.mean) / self.std", lambda x, m, s: ((x // 255) - m) / s),
        ("((images / 255).round() - self.mean) / self.std", lambda x, m, s: ((x / 255).round() - m) / s),
    ],
    "Your program swaps mean and std.": [
        ("(images.float() / 255 - self.std) / self.mean", lambda x, m, s: (x.float() / 255 - s) / m),
    ],
    "Your program divides only the mean by std. The parentheses matter: (x - mean) / std.": [
        ("images.float() / 255 - self.mean / self.std", lambda x, m, s: x.float() / 255 - m / s),
    ],
    "Your program uses the mean and std of the batch. They are constants of the training set, given as arguments.": [
        (
            "(images.float() - images.float().mean((0, 2, 3), True)) / images.float().std((0, 2, 3), keepdim=True)",
            lambda x, m, s: (x.float() - x.float().mean((0, 2, 3), True)) / x.float().std((0, 2, 3), keepdim=True),
        ),
        (
            "(images / 255 - (images / 255).mean()) / (images / 255).std()",
            lambda x, m, s: (x / 255 - (x / 255).mean()) / (x / 255).std(),
        ),
    ],
    "Your program normalizes with one mean and one std for all channels; each channel has its own.": [
        (
            "(images.float() / 255 - self.mean.mean()) / self.std.mean()",
            lambda x, m, s: (x.float() / 255 - m.mean()) / s.mean(),
        ),
        ("(images.float() / 255 - self.mean[0]) / self.std[0]", lambda x, m, s: (x.float() / 255 - m[0]) / s[0]),
    ],
}

exercise(
    "with_preprocessing",
    seconds=SECONDS,
    title="Preprocessing inside",
    minutes=8,
    difficulty=2,
    points=2,
    takeaway="What is inside the file cannot be forgotten, and the example comes along: a few zeros will do.",
    hints=(
        "Write a module whose `forward` takes uint8 images, prepares them as in the formula, and calls `net`. What "
        "shape do mean and std need so that each channel gets its own?",
        "Call `.eval()` on your module before you export it. The example needs two images of the right shape and "
        "dtype, with anything in them: `torch.zeros_like(images[:2])`.",
        '`program = torch.export.export(module, (example,), dynamic_shapes=({0: torch.export.Dim("batch")},))`, then '
        "`torch.export.save(program, path)`.",
    ),
    spec=Spec(
        draw=_nets,
        solution=_write_reader,
        measure=_read_back,
        atol=1e-4,
        by_case=True,
        mistakes=[
            """
            _saved_elsewhere
                There is no file at `path` after your function has run.
                look: `torch.export.save(program, path)`
                when: "files" in yours
            _saved_with_torch
                `torch.export.load` cannot read your file: there is no exported program in it.
                look: `torch.export.save`, not `torch.save`
                when: "unreadable" in yours
            _net_alone
            torch.zeros_like(images[:2]) → torch.zeros_like(images[:2]).float()
                Your program doesn't take uint8 images. It says: {yours[why]}
                look: the dtype of your example, and the first thing that `forward` does
                when: len(yours["refused"]) == len(yours["logits"]) and "size()" not in yours["why"]
            dynamic_shapes=dynamic → dynamic_shapes=None
            dynamic_shapes=dynamic → dynamic_shapes=None && images[:2] → images[:1] || images[:8]
            Dim("batch") → Dim("batch", max=64)
                Your program refuses batches of {yours[sizes]}. It says: {yours[why]}
                look: `dynamic_shapes`, and an example of at least two images
                when: yours["refused"]
            images[:2] → images[:1]
                Your export is refused: with an example of one image, or with `len(images)` in `forward`, the batch size
                becomes a constant, and you have asked for any.
                look: an example of at least two images
                when: says(yours, "Constraints violated", "specialized")
            _prepared("(images.float() / 255 - self.mean.flatten()) / self.std.flatten()")
                Your mean and std don't fit the images [B, C, H, W]: C numbers meet the last axis, the width. Give them
                the shape [C, 1, 1].
                look: `.view(-1, 1, 1)`
                when: says(yours, "must match the size")
            .eval() →
            .eval() → .train()
                Your program gives different logits for the same images when it runs again: dropout is in the graph.
                look: `.eval()` before the export
                when: yours["random"]
            lambda net, *given: _write_reader(nn.Sequential(net, nn.Softmax(1)), *given)
                Your program returns probabilities: there is a softmax in it. Return the logits of `net`.
                when: all((x >= 0).all() and (x.sum(1) - 1).abs().max() < 1e-4 for x in yours["logits"])
            """,
            *(
                Mistake(sentence, *(_prepared(code) for code, _ in rows), when=_normalizes(*(f for _, f in rows)))
                for sentence, rows in _PREPARATIONS.items()
            ),
            """
            reader = _Reader(net, mean, std) → pixels = images / 255; reader = _Reader(net, pixels.mean((0, 2,
                    3)).tolist(), pixels.std((0, 2, 3)).tolist())
                Your program normalizes with the mean and std of `images`, which are only examples. Use those that are
                given: the network was trained with them.
            torch.zeros_like(images[:2]) → images[:2] || images
                Your program is right, but the file has {yours[bytes]:,} bytes, for a network of a few kB: the images
                are in it. A slice of a tensor saves all of it.
                look: the example that you export with: `torch.zeros_like`, or a clone
                when: yours["bytes"] >= LIMIT
            """,
        ],
        also_right=[
            _writing(("_Reader(net", "_TorchvisionStyle(net")),
            _writing(("torch.zeros_like(images[:2])", "images[:3].clone()")),
            _writing(('({0: torch.export.Dim("batch")},)', '{"images": {0: torch.export.Dim.AUTO}}')),
        ],
    ),
)


# ---------------------------------------------------------------------------------------------------------------------
# same_answers


def _same_answers(logits: Tensor, others: Tensor, labels: Tensor, tolerance: float) -> dict[str, Any]:
    before, after = logits.argmax(dim=1), others.argmax(dim=1)
    flipped = before != after
    largest = logits.topk(2, dim=1).values
    sure = largest[:, 0] - largest[:, 1] > tolerance
    gained = (after == labels).float().mean() - (before == labels).float().mean()
    difference = (others - logits).abs().max() / logits.abs().max()
    return {
        "accuracy": gained.item(),
        "difference": difference.item(),
        "flips": flipped.sum().item(),
        "same": bool(others.isfinite().all() and not (flipped & sure).any()),
    }


def _same_answers_in_python(logits: Tensor, others: Tensor, labels: Tensor, tolerance: float) -> dict[str, Any]:
    same, flips, right = True, 0, 0
    for one, other, label in zip(logits.tolist(), others.tolist(), labels.tolist(), strict=True):
        mine, theirs = one.index(max(one)), other.index(max(other))
        first, second = sorted(one)[:-3:-1]
        right += (theirs == label) - (mine == label)
        flips += mine != theirs
        same = same and (mine == theirs or first - second <= tolerance) and all(abs(v) < 1e30 for v in other)
    difference = max(abs(a - b) for a, b in zip(logits.flatten().tolist(), others.flatten().tolist(), strict=True))
    largest = max(abs(value) for value in logits.flatten().tolist())
    return {"same": same, "flips": flips, "difference": difference / largest, "accuracy": right / len(labels)}


ENTRIES = {
    "accuracy": "The change of accuracy",
    "difference": "The difference",
    "flips": "The number of flips",
    "same": "The verdict `same`",
}


def _comparison(ask: Any, logits: Tensor, others: Tensor, labels: Tensor, tolerance: float) -> Found:
    result = ask(logits, others, labels, tolerance)
    if not isinstance(result, dict) or not ENTRIES.keys() <= result.keys():
        return {"instead": result}
    names = ENTRIES if others.isfinite().all() else {"same": ENTRIES["same"]}
    found = {name: result[entry] for entry, name in names.items()}
    verdict = result["same"]
    if isinstance(verdict, Tensor) and verdict.numel() == 1:
        verdict = verdict.item()
    found[ENTRIES["same"]] = bool(verdict) if type(verdict).__name__ in ("bool", "bool_") else verdict
    return found


def _two_versions(new: Inputs) -> list[tuple[Tensor, Tensor, Tensor, float]]:
    """Flips where the original was unsure; one where it was sure, with equal accuracy; a nan; an infinite number; both
    kinds of flips; no flip; and a flip with a margin of exactly the tolerance.

    In the first case the logits are far apart and the answers still the same; in the second it is the other way around.
    """
    found = []
    classes = new.size(4, 6)
    for kind in ("unsure", "sure", "worse", "even", "nan", "inf", "mixed", "none", "edge"):
        rows = new.size(14, 19)
        logits = -2 - 3 * new.rand(rows, classes)
        order = torch.stack([new.permutation(classes) for _ in range(rows)])
        first, second, third = order[:, :1], order[:, 1:2], order[:, 2:3]
        logits.scatter_(1, first, 3 + new.rand(rows, 1)).scatter_(1, second, 1 + new.rand(rows, 1))
        logits.scatter_(1, third, new.rand(rows, 1) * 0.2)
        logits[3, order[3, 3]] = -9.3  # the largest absolute value is negative
        others = logits + (new.rand(rows, classes) - 0.5) * 0.01
        labels = first[:, 0].clone()
        labels[-3:] = third[-3:, 0]  # wrong in both versions
        tolerance = 0.125
        if kind in ("unsure", "worse", "even"):
            for row in (0, 1, 2):  # its two largest are close
                logits[row, first[row]] = logits[row, second[row]] + 0.01 + 0.05 * new.rand(1)
                others[row] = logits[row]
                others[row, first[row]] -= 0.09
                others[row, second[row]] += 0.8 if kind == "unsure" else 0.09
        if kind == "unsure":  # the other version is sure of another answer, once of the third
            others[2, third[2]] += 3.5
            labels[:2] = second[:2, 0]  # two are gained, one is lost
            others[5, order[5, 3]] -= 2.5 + new.rand(1).item()
            others[3, order[3, 3]] -= 1
        if kind == "even":  # one is lost, one is gained, one was wrong and still is
            labels[1], labels[2] = second[1, 0], third[2, 0]
        if kind == "sure":
            for row in (0, 1):  # one is lost, one is gained, and no logit changes by more than the tolerance
                logits[row, first[row]] = logits[row, second[row]] + 0.15
                others[row] = logits[row]
                others[row, first[row]] -= 0.09
                others[row, second[row]] += 0.07
            labels[1] = second[1, 0]
        if kind == "mixed":  # the mean of the two margins is below the tolerance
            for row, margin, change in ((0, 0.15, 0.08), (1, 0.02, 0.03)):
                logits[row, first[row]] = logits[row, second[row]] + margin
                others[row] = logits[row]
                others[row, first[row]] -= change
                others[row, second[row]] += change
        if kind == "none":
            others[3, order[3, 3]] -= 1
        if kind == "edge":
            logits[0, first[0]], logits[0, second[0]] = 1.5 + tolerance, 1.5  # exact in binary
            others[0] = logits[0]
            others[0, second[0]] += 0.3
        if kind == "nan":
            others[4, first[4]] = torch.nan
        if kind == "inf":
            others[6, order[6, 3]] = -torch.inf
        found.append((logits, others, labels, tolerance))
    return found


def _comparing(*places: tuple[str, str]) -> Callable:
    return changed(_same_answers, *places)


exercise(
    "same_answers",
    title="Does it still give the same answers?",
    minutes=8,
    difficulty=2,
    points=2,
    takeaway="Count the flips and look at how sure the original was: equal accuracy can hide many of them.",
    hints=(
        "Start with the two lists of answers: `logits.argmax(dim=1)` and the same for `others`. Three of the four "
        "entries need them.",
        "How sure a row is: `logits.topk(2, dim=1).values` has the two largest, the larger one first. Look only at the "
        "rows that flip.",
        "A nan is neither larger nor smaller than anything, so no comparison finds it: `others.isfinite().all()`.",
    ),
    spec=Spec(
        draw=_two_versions,
        solution=_same_answers,
        measure=_comparison,
        dtype=False,
        mistakes="""
            lambda *given: tuple(_same_answers(*given).values())
            lambda *given: {"flips": 3, "same": True}
                Your function should return a dict with the four entries accuracy, difference, flips, and same. It
                returned {yours[instead]}.
                when: _instead
            (after == labels).float().mean() - (before == labels).float().mean()
                    → (before == labels).float().mean() - (after == labels).float().mean()
                Your change of accuracy has the wrong sign: it is the accuracy of `others` minus that of `logits`.
            (after == labels).float().mean() - (before == labels).float().mean()
                    → (after == before).float().mean() || (after != before).float().mean()
                Your accuracy is the share of rows with the same answer. Compare the answers of both versions with the
                labels.
            (after == labels).float().mean() - (before == labels).float().mean() → (after == labels).float().mean()
                Your accuracy is that of `others` alone; the entry is the change from `logits` to `others`.
            (after == labels).float().mean() - (before == labels).float().mean()
                    → 100 * ((after == labels).float().mean() - (before == labels).float().mean())
                    || (after == labels).float().sum() - (before == labels).float().sum()
                Your change of accuracy is a percentage or a count; it should be a share of the images.
            (after == labels).float().mean() - (before == labels).float().mean()
                    → ((after == labels).float().mean() - (before == labels).float().mean()).abs()
                Your change of accuracy has lost its sign: a version can be worse.
            (others - logits).abs().max() / logits.abs().max() → (others - logits).abs().max()
                Your difference is absolute. Divide it by the largest absolute value in `logits`: 0.1 is much for small
                logits and little for large ones.
            (others - logits).abs().max() / logits.abs().max()
                    → ((others - logits).abs() / logits.abs()).max() || ((others - logits) / logits).abs().max()
                You divide each difference by its own logit, so one logit near 0 decides. Divide the largest difference
                by the largest absolute value in `logits`.
            (others - logits).abs().max() / logits.abs().max() → (others - logits).abs().max() / logits.max()
                You divide by the largest logit. The largest absolute value may be a negative one.
            (others - logits).abs().max() / logits.abs().max() → (others - logits).abs().max() / others.abs().max()
                You divide by the largest logit of `others`; the original is the measure.
            (others - logits).abs().max() / logits.abs().max()
                    → (others - logits).max() / logits.abs().max() || (logits - others).max() / logits.abs().max()
                Your difference counts one direction only: a logit may become smaller, too.
                look: `abs` before the maximum
            (others - logits).abs().max() / logits.abs().max() → (others - logits).abs().mean() / logits.abs().max()
                    || (others - logits).abs().mean() / logits.abs().mean() || (others - logits).norm() / logits.norm()
                Your difference is a mean. A mean hides the one row that is far off; take the largest.
            (others - logits).abs().max() / logits.abs().max()
                    → (others.round(decimals=1) - logits.round(decimals=1)).abs().max() / logits.abs().max()
                    || torch.round((others - logits).abs().max() / logits.abs().max(), decimals=2)
                You round before you compare, so anything smaller than the last digit is lost.
            flipped.sum().item() → ((before == labels).sum() - (after == labels).sum()).abs().item()
                    || ((before == labels).sum() - (after == labels).sum()).item()
                Your flips are the change in the number of right answers. A lost and a gained one cancel there; a flip
                is any row whose answer changes.
            flipped.sum().item() → (flipped & (before == labels)).sum().item()
                You count flips only where a right answer is lost. A flip is any row whose answer changes.
            flipped.sum().item() → ((after == labels) != (before == labels)).sum().item()
                You count flips only where right becomes wrong, or wrong right. From one wrong answer to another is a
                flip, too.
            flipped.sum().item() → (after != labels).sum().item()
            before != after → after != labels
                Your flips are the wrong answers of `others`. A flip is a row where the two versions disagree.
            flipped.sum().item() → (flipped & sure).sum().item()
                You count flips only where the original was sure. All of them count; the verdict tells them apart.
            flipped.sum().item() → flipped.float().mean().item()
                Your flips are a share; the entry is the number of rows.
            others.isfinite().all() and not (flipped & sure).any()
                    → others.isfinite().all() and not flipped.any() || not flipped.any()
                Your verdict is False whenever a row flips. Where the original's two largest logits are at most the
                tolerance apart, either answer will do.
            others.isfinite().all() and not (flipped & sure).any() → others.isfinite().all() and not sure.any()
                Your verdict is False although no row flips: the original has to be unsure only where a row flips.
            others.isfinite().all() and not (flipped & sure).any()
                    → others.isfinite().all() and not (flipped.any() and sure[flipped].all())
                    || others.isfinite().all() and not (flipped.any() and (largest[:, 0] - largest[:,
                    1])[flipped].mean() > tolerance)
                Your verdict is True if the original was unsure in one of the rows that flip, or on average. It must be
                unsure in each of them.
            > tolerance → >= tolerance
                Your verdict is False where the two largest logits are exactly `tolerance` apart. At most `tolerance`
                includes that.
            > tolerance → < tolerance || <= tolerance
                Your comparison with the tolerance is turned around: a flip is harmless where the original's two largest
                logits are at most `tolerance` apart.
            others.isfinite().all() and not (flipped & sure).any() → others.isfinite().all()
            > tolerance → > tolerance * logits.abs().max()
            logits.topk → logits.softmax(1).topk
                Your verdict is True for all finite numbers, also where the original was sure of an answer that changes.
                Compare its two largest logits, as they are, with the tolerance.
            largest[:, 0] - largest[:, 1] > → (largest[:, :1] - logits.gather(1, after[:, None]))[:, 0] >
                Your verdict compares the original's largest logit with that of the new answer. What counts is how far
                the original's two largest logits are apart, whichever answer is the new one.
            others.isfinite().all() and not (flipped & sure).any()
                    → difference <= tolerance || (others - logits).abs().max() <= tolerance
                    || torch.allclose(others, logits, atol=tolerance)
                    || ((others - logits).abs()[flipped] <= tolerance).all()
                    || others.isfinite().all() and ((others - logits).abs()[flipped] <= tolerance).all()
                Your verdict compares the difference of the logits with the tolerance. Small differences can flip a row,
                and large ones may flip none.
                look: the rows that flip, and how sure the original was of them
            others.isfinite().all() and not (flipped & sure).any()
                    → others.isfinite().all() and abs(gained) <= tolerance || others.isfinite().all() and gained == 0
                    || others.isfinite().all() and gained >= 0 || gained >= 0 || abs(gained) <= tolerance
                Your verdict compares accuracies. A lost and a gained answer cancel there.
            others.isfinite().all() and not (flipped & sure).any()
                    → not (flipped & sure).any() || not others.isnan().any() and not (flipped & sure).any()
                    || not others.isinf().any() and not (flipped & sure).any()
                There is a nan or an infinite number in `others`, and your verdict is True. `<` and `>` don't catch a
                nan: ask for both.
                look: `isfinite`
                when: yours[ENTRIES["same"]] is True and not others.isfinite().all()
            logits.topk → others.topk
                Your verdict looks at how sure `others` is of the rows that flip. How sure was the original?
            bool(others → not (others
                Your verdict is inverted: True means that the answers are the same.
        """,
        also_right=[
            _same_answers_in_python,
            _comparing(("bool(others", "(others"), ("flipped.sum().item()", "flipped.sum()")),
            _comparing(("others.isfinite().all()", "not (others - others).isnan().any()")),
        ],
    ),
)


# ---------------------------------------------------------------------------------------------------------------------
# quantize_rows


def _quantized(weight: Tensor) -> tuple[Tensor, Tensor]:
    largest = weight.abs().amax(dim=1)
    scales = torch.where(largest > 0, largest / 127, 1.0)
    numbers = (weight / scales[:, None]).round()
    return numbers.to(torch.int8), scales


def _quantized_one_by_one(weight: Tensor) -> list[Tensor]:
    scales = torch.tensor([max(row.abs().max().item(), 1e-9) / 127 for row in weight])
    pairs = zip(weight.tolist(), scales.tolist(), strict=True)
    rows = [torch.tensor([round(value / scale) for value in row]) for row, scale in pairs]
    return [torch.stack(rows).to(torch.int8), scales]


def _numbers_and_scales(ask: Any, weight: Tensor) -> Found:
    result = ask(weight)
    if not isinstance(result, tuple | list) or len(result) != 2:
        return {"instead": result}
    numbers, scales = result
    found = {
        "The tensor of numbers": numbers,
        "The tensor of scales": scales,
        "The scale of a row of zeros is a positive number": True,
    }
    zeros = weight.abs().amax(dim=1) == 0
    if isinstance(scales, Tensor) and scales.shape == zeros.shape and scales.is_floating_point():
        found["of zeros"] = scales[zeros].tolist()
        good = bool((scales[zeros] > 0).all() and scales[zeros].isfinite().all())
        found["The scale of a row of zeros is a positive number"] = good
        found["The tensor of scales"] = torch.where(zeros, 1.0, scales)  # any positive one is right
    return found


def _weights(new: Inputs) -> list[tuple[Tensor]]:
    """No value is near the middle between two numbers; some rows are far larger than others, one is all zeros."""
    found = []
    for _ in range(2):
        rows, columns = new.sizes(2, 5, 9)
        steps = new.ints(-100, 101, (rows, columns)) + (new.rand(rows, columns) - 0.5) * 0.8
        for row, column in enumerate(new.ints(0, columns, (rows,)).tolist()):
            steps[row, column] = -127 if row == 0 or (row > 1 and new.size(0, 1)) else 127
        powers = new.ints(1, 5, (rows, 1))
        powers[0], powers[1] = 1, 6
        weight = steps * (0.2 + new.rand(rows, 1)) * 10.0**-powers
        weight[2] = 0
        weight = weight[new.permutation(rows)]
        found.append((weight,))
    return found


def _has_a_floor(yours: Found, expected: Found, weight: Tensor) -> bool:
    """The scales that are wrong are one and the same number, too large for its rows."""
    mine, right = yours["The tensor of scales"], expected["The tensor of scales"]
    rows = (weight != 0).any(dim=1)
    wrong = rows & ~torch.isclose(mine, right, 1e-3, 0)
    floor = mine[wrong].max()
    return bool((mine[wrong] == floor).all() and (mine[wrong] > right[wrong]).all() and floor < 0.9 * right[rows].max())


def _adds_a_number(yours: Found, expected: Found, weight: Tensor) -> bool:
    """All scales are too large by the same number."""
    rows = (weight != 0).any(dim=1)
    more = (yours["The tensor of scales"] - expected["The tensor of scales"])[rows]
    return bool((more > 0).all() and torch.allclose(more, more.mean().expand_as(more), 1e-2, 0))


def _is_float(value: Any) -> bool:
    return isinstance(value, Tensor) and value.is_floating_point()


exercise(
    "quantize_rows",
    title="One byte for each weight",
    minutes=7,
    difficulty=2,
    points=2,
    takeaway="Each row has a range of its own, so no weight is off by more than half of its row's scale.",
    hints=(
        "The scale is what one step of the integers is worth. The largest value of a row is worth 127 steps.",
        "`weight.abs().amax(dim=1)` has the largest value of each row. Give the scales a second axis when you divide: "
        "`scales[:, None]`.",
        "Replace a scale of 0 before you divide (`torch.where`, or `clamp(min=...)` with a very small number), then "
        "`.round().to(torch.int8)`.",
    ),
    spec=Spec(
        draw=_weights,
        solution=_quantized,
        measure=_numbers_and_scales,
        atol=1e-8,
        mistakes="""
            = _quantized(weight)[0]
            = (*_quantized(weight), 127)
                Your function should return two values, the numbers and the scales. It returned {yours[instead]}.
                when: _instead
            largest = weight.abs().amax(dim=1) → largest = weight.abs().amax(dim=1).clamp(min=1e-3)
                Your scales have a lower limit, so a row of small weights loses its digits: its largest number should be
                127 or -127, too.
                look: `clamp(min=…)`: only a row of zeros needs another scale
            = _quantized(weight)[::-1]
                You return the two values in the wrong order: first the numbers, then the scales.
                when: _is_float(yours["The tensor of numbers"]) and yours["The tensor of scales"].dtype == torch.int8
            = (_quantized(weight)[0], weight.abs().amax(1) / 127)
            = (_quantized(weight)[0], weight.abs().amax(1) / 127 * 0 / 0)
                The scale of a row of zeros is {yours[of zeros][0]}: 0 divided by it is not a number. Choose any
                positive scale for such a row.
                look: the division
                when: not yours["The scale of a row of zeros is a positive number"]
            weight.abs().amax(dim=1) → weight.abs().max().expand(len(weight))
            = ((weight / weight.abs().max() * 127).round().to(torch.int8), weight.abs().max() / 127)
                You have one scale for all: the largest row takes the whole range, and small rows become zeros.
                look: the maximum over each row: `dim=1`
            torch.where(largest > 0, largest / 127, 1.0) → (largest / 127).clamp(min=1e-3)
                Your smallest scale is so large that small rows lose their precision. Only a row of zeros needs a scale
                that is not its own.
                when: _has_a_floor
            torch.where(largest > 0, largest / 127, 1.0) → largest / 127 + 1e-3
                You add a small number to every scale, which changes all of them. Only a row of zeros needs a scale that
                is not its own.
                when: _adds_a_number
            weight.abs().amax(dim=1) → weight.abs().amax(dim=0) && scales[:, None] → scales
                You have a scale for each column. A row makes one output of the layer, so each row gets a scale.
                look: `dim=1`
            weight.abs().amax(dim=1) → weight.amax(dim=1)
            weight.abs().amax(dim=1) → weight.amax(dim=1) && .round() → .round().clamp(-127, 127)
            weight.abs().amax(dim=1) → weight.amax(dim=1) && .round() → .round().clamp(-128, 127)
                Your scales come from the largest value of each row. The weight with the largest absolute value may
                be negative.
                look: `abs` before the maximum
            .round() →
            .round() → .floor()
                You cut off the digits after the decimal point. Round to the nearest integer: the error is then at most
                half a scale.
                look: `.round()` before `.to(torch.int8)`
            .round() → .ceil()
                You always round up. Round to the nearest integer: the error is then at most half a scale.
                look: `.round()` before `.to(torch.int8)`
            (weight / scales → (weight.abs() / scales
                Your numbers have lost their signs: negative weights become positive.
                look: `abs` belongs to the scales only
            (weight / scales → (weight * scales
                You multiply the weights by the scale. weight ≈ scale · number, so the number is the weight divided by
                the scale.
            .round() → .round().clamp(-126, 126) || .round().clamp(-120, 120) || .round().clamp(-100, 100)
                The largest numbers of your rows are cut off. With the right scale they reach exactly 127 or -127.
                look: `clamp`
                when: yours["The tensor of numbers"].dtype == torch.int8 and torch.allclose(yours["The tensor of
                    scales"], expected["The tensor of scales"], 1e-3, 0) and torch.equal(yours["The tensor of numbers"],
                    expected["The tensor of numbers"].clamp(-yours["The tensor of numbers"].max(), yours["The tensor of
                    numbers"].max()))
            largest / 127 → largest / 128 || largest / 255 || largest / 256
            largest / 127 → largest / 128 && .round() → .round().clamp(-128, 127)
            largest / 127 → largest / 127.5 && .round() → .round().clamp(-128, 127)
            largest / 127 → largest / 126 && .round() → .round().clamp(-128, 127)
            largest / 127 → largest * 2 / 255
                The numbers go from -127 to 127, so the largest value in a row is worth 127 scales.
                look: what the largest value is divided by
            largest / 127 → largest * 2 / 127 || largest / 63
                Your scale is twice as large as it needs to be: the numbers reach from -127 to 127 on both sides.
                when: 50 < yours["The tensor of numbers"].abs().max() <= 65
            = (((weight - weight.amin(1, True)) / (weight.amax(1, True) - weight.amin(1, True) + 1e-12) * 255 - 128)
                    .round() .to(torch.int8), (weight.amax(1) - weight.amin(1)) / 255 + 1e-12)
                Your numbers span the smallest to the largest value of each row, so that 0 gets a number other than 0.
                Here the range is the same on both sides of 0.
                when: torch.allclose(yours["The tensor of scales"] * 255, torch.where((weight == 0).all(1), 255,
                    weight.amax(1) - weight.amin(1)))
            = (_quantized(weight)[0], 1 / _quantized(weight)[1])
                Your scales are upside down: weight ≈ scale · number, so the scale is the largest value divided by 127.
            = (_quantized(weight)[0].float(), _quantized(weight)[1])
            = (_quantized(weight)[0].int(), _quantized(weight)[1])
                Your numbers are rounded, but they are {yours[The tensor of numbers].dtype}: four bytes each. One byte
                is `torch.int8`.
                when: yours["The tensor of numbers"].dtype in (torch.float32, torch.int32) and torch.equal(yours["The
                    tensor of numbers"], expected["The tensor of numbers"].to(yours["The tensor of numbers"].dtype))
            = (_quantized(weight)[0] * _quantized(weight)[1][:, None], _quantized(weight)[1])
                You return the rounded weights, scale · number. Return the numbers themselves, in int8.
            = (_quantized(weight)[0], _quantized(weight)[1][:, None])
                Your scales have the shape {yours[The tensor of scales].shape}; there should be one number for each row:
                {expected[The tensor of scales].shape}.
                look: `amax(dim=1)` without `keepdim`, or `.squeeze(1)` at the end
                when: yours["The tensor of scales"].dim() == 2 and torch.allclose(yours["The tensor of
                    scales"].flatten(), _quantized(weight)[1].flatten())
            weight.abs().amax(dim=1) → weight.abs().mean(dim=1) && .round() → .round().clamp(-127, 127)
            weight.abs().amax(dim=1) → (weight.amax(dim=1) - weight.amin(dim=1)) / 2 || weight.norm(dim=1)
                Your scales are not right. The scale of a row is its largest absolute value divided by 127.
                when: yours["The tensor of scales"].shape == expected["The tensor of scales"].shape and not
                    torch.allclose(yours["The tensor of scales"], expected["The tensor of scales"], 1e-3, 0)
        """,
        also_right=[
            _quantized_one_by_one,
            lambda weight: (
                (scales := (weight.abs().amax(1) / 127).clamp(min=1e-12)) is not None
                and (torch.round(weight / scales.unsqueeze(1)).to(torch.int8), scales)
            ),
            lambda weight: (
                (weight * (127 / weight.abs().max(dim=1, keepdim=True).values.clamp(min=1e-9))).round().char(),
                weight.abs().max(dim=1).values.clamp(min=1e-9) / 127,
            ),
        ],
    ),
)


# ---------------------------------------------------------------------------------------------------------------------
# linear_rows


def _linear(x: Tensor, numbers: Tensor, scales: Tensor, bias: Tensor) -> Tensor:
    return x @ numbers.float().T * scales + bias


def _layers(new: Inputs) -> list[tuple[Tensor, Tensor, Tensor, Tensor]]:
    """Three different sizes; three equal ones, with which swapped axes fit; another layer of these sizes."""
    found = []
    square = [new.size(3, 6)] * 3
    for batch, rows, columns in (new.sizes(3, 3, 8), square, square):
        numbers = new.ints(-127, 128, (rows, columns)).to(torch.int8)
        found.append((new.randn(batch, columns), numbers, new.rand(rows) / 20 + 0.005, new.randn(rows)))
    return found


exercise(
    "linear_rows",
    title="Multiply first, scale afterward",
    minutes=4,
    difficulty=1,
    points=1,
    takeaway="A row's scale factors out of the sum: one multiplication for each output instead of each weight.",
    hints=(
        "Each weight of row i is `scales[i] * numbers[i]`. What does the sum over a row look like, if you take the "
        "scale out of it?",
        "A matrix product needs both tensors in one dtype: `numbers.float()`.",
        "The product has the shape [B, rows], and so `* scales` multiplies each output by the scale of its row.",
    ),
    spec=Spec(
        draw=_layers,
        solution=_linear,
        atol=1e-4,
        mistakes="""
            .float() →
            = torch.nn.functional.linear(x, numbers, bias)
                A matrix product needs two tensors of the same dtype, and yours has float32 and int8.
                look: `numbers.float()`
                when: says(yours, "same dtype", "mat1 and mat2 must have")
            + bias →
                You left out the bias.
            * scales →
                You left out the scales: your outputs are sums of integers.
            + bias → - bias
                You subtract the bias. A linear layer adds it.
            scales + bias → (scales + bias)
                You add the bias to the scales before you multiply. First the product times the scales, then the bias.
                look: the parentheses
            numbers.float().T → (numbers * scales[:, None]).T
            * scales → * scales ** 2
                You use the scales twice.
            * scales → * scales.mean() || * scales.max() || * scales[0]
                You use one scale for all outputs; each row of `numbers` has its own.
            * scales → * scales / 127
                You divide by 127. It is in the scales already: a weight is scale · number.
            lambda *given: _linear(*given).relu()
                There is a ReLU in your function. A linear layer has none.
            = (x * numbers.float()).sum(1) * scales + bias
            = x * numbers.float() * scales + bias
                `*` multiplies number by number. Each output is a sum over a row of x: a matrix product.
                look: `@`
            = (x @ numbers.float().T + bias) * scales
                You multiply the bias by the scales, too. It was never quantized.
                look: first the scales, then the bias
            * scales → / scales
                You divide by the scales. A weight is scale · number.
            .T →
                The rows of `numbers` are the outputs, as in `nn.Linear`: multiply by the transposed matrix.
            = x @ (numbers * scales).T + bias
            = (x * scales) @ numbers.float().T + bias
                Your scales belong to rows, but you multiply the columns by them: the outputs are the rows.
                look: `scales[:, None]` beside the matrix, or `scales` beside the product
            * scales → * scales[:, None]
                You multiply each row of the product by a scale, but each output has one: its second axis.
            x @ → x.round() @ || x.to(torch.int8).float() @
                You turn x into integers as well. Here only the weights are integers; x stays float32.
        """,
        also_right=[
            lambda x, numbers, scales, bias: torch.nn.functional.linear(x, numbers * scales[:, None], bias),
            lambda x, numbers, scales, bias: torch.addmm(bias, x, (numbers.float() * scales.unsqueeze(1)).t()),
            lambda x, numbers, scales, bias: torch.einsum("bc,rc,r->br", x, numbers.to(x.dtype), scales) + bias,
        ],
    ),
)


# ---------------------------------------------------------------------------------------------------------------------
# my_op


def sliding_mean(array: np.ndarray, width: int) -> np.ndarray:
    """The function that the lab gives."""
    return np.lib.stride_tricks.sliding_window_view(array, width, axis=1).mean(axis=2)


def _register(name: str) -> None:
    @torch.library.custom_op(name, mutates_args=())
    def moving_mean(x: torch.Tensor, width: int) -> torch.Tensor:
        return torch.from_numpy(sliding_mean(x.numpy(), width)).contiguous()

    @moving_mean.register_fake
    def _(x, width):
        return x.new_empty(x.shape[0], x.shape[1] - width + 1)

    def remember(ctx, inputs, output):
        ctx.width = inputs[1]

    def backward(ctx, gradient):
        width = ctx.width
        around = F.pad(gradient, (width - 1, width - 1))
        return around.unfold(1, width, 1).mean(dim=2), None

    moving_mean.register_autograd(backward, setup_context=remember)


def _register_through_itself(name: str) -> None:
    """The gradient of a moving mean is a moving mean, of the gradient between zeros: the operator itself."""
    moving_mean = torch.library.custom_op(
        name, lambda x, width: torch.from_numpy(sliding_mean(x.numpy(), width).copy()), mutates_args=(),
        schema="(Tensor x, int width) -> Tensor",
    )  # fmt: skip
    torch.library.register_fake(name, lambda x, width: x.unfold(1, width, 1).mean(2))

    def remember(ctx: Any, inputs: tuple, output: Tensor) -> None:
        ctx.width = inputs[1]

    def backward(ctx: Any, gradient: Tensor) -> tuple:
        width = ctx.width
        return moving_mean(F.pad(gradient, (width - 1, width - 1)), width), None

    torch.library.register_autograd(name, backward, setup_context=remember)


_LIBRARIES = []


def _register_by_hand(name: str) -> None:
    namespace, _, operator = name.partition("::")
    library = torch.library.Library(namespace, "DEF")
    _LIBRARIES.append(library)
    library.define(f"{operator}(Tensor x, int width) -> Tensor")
    library.impl(operator, lambda x, width: x.unfold(1, width, 1).mean(2), "CompositeImplicitAutograd")


OPCHECK = "The verdict of opcheck"
FAKE = "What the fake promises"
DIGITS = "In float64, all digits are right"


def _tried(answer: Callable, rows: list[tuple[Tensor, int]]) -> Found:
    """What the registered operator returns and promises, its gradients, and what opcheck finds."""
    attempted(answer)
    namespace = f"lab_{uuid.uuid4().hex}"
    with _quietly():
        call(answer, f"{namespace}::moving_mean", may_return_none=True)
        try:
            operator = native.registered(f"{namespace}::moving_mean")
        except AttributeError:
            return {"missing": True}

        def in_words(error: Any) -> str:
            """Without the names that are different in each run: the namespace, and the class made of it."""
            line = re.sub(r"'GeneratedBackwardFor_\w+' object", "ctx", _first_line(error))
            return line.replace(namespace, "lab")

        def attempt(function: Callable) -> Any:
            try:
                return function()
            except Exception as error:
                return in_words(error)

        def gradient(x: Tensor, width: int) -> Any:
            x = x.clone().requires_grad_()
            result = operator(x, width)
            if not isinstance(result, Tensor):
                return "the operator returns no tensor"
            if not result.requires_grad:
                return "no autograd formula was registered"
            operator(x, 1)  # another call, before this one goes backward: what a call saves belongs to it
            return torch.autograd.grad((result * torch.linspace(0.5, 2, result.numel()).view(result.shape)).sum(), x)[0]

        def promise(x: Tensor, width: int) -> tuple:
            result = operator(x.to("meta"), width)
            return tuple(result.shape), result.dtype

        def opinion(x: Tensor, width: int) -> list[str]:
            verdicts = attempt(lambda: torch.library.opcheck(operator, (x, width), raise_exception=False))
            if isinstance(verdicts, str):
                return [verdicts]
            return [f"{test}: {in_words(verdict)}" for test, verdict in verdicts.items() if verdict != "SUCCESS"]

        found: Found = {
            "results": [attempt(lambda x=x, width=width: operator(x.clone(), width)) for x, width in rows],
            "promises": [attempt(lambda x=x, width=width: promise(x, width)) for x, width in rows],
            "gradients": [attempt(lambda x=x, width=width: gradient(x, width)) for x, width in rows],
        }
        schema = operator._schema
        found["signature"] = ", ".join(str(each.type) for each in schema.arguments)
        (x, width), (transposed, other_width) = rows[0], rows[3]
        each = (x.clone(), width), (x.clone().requires_grad_(), width), (transposed, other_width)
        return found | {"opcheck": [verdict for inputs in each for verdict in opinion(*inputs)]}


def _rounded(result: Any, right: Tensor) -> bool:
    """Whether a float64 result is right, but only to the digits of float32."""
    alike = isinstance(result, Tensor) and (result.shape, result.dtype) == (right.shape, right.dtype)
    return alike and torch.allclose(result, right, 1e-4, 1e-4) and not torch.allclose(result, right, 1e-9, 1e-9)


def _operator(ask: Any, rows: list[tuple[Tensor, int]]) -> Found:
    seen = ask.observe(_tried, rows)
    if "results" not in seen:
        return seen
    found = dict(seen)
    for (x, width), result in zip(rows, seen["results"], strict=True):
        found[f"The result for rows of {x.shape[1]} and a width of {width}"] = result
    for (x, width), promise in zip(rows, seen["promises"], strict=True):
        found[f"{FAKE} for rows of {x.shape[1]} and a width of {width}"] = promise
    for (x, width), gradient in zip(rows, seen["gradients"], strict=True):
        found[f"The gradient for rows of {x.shape[1]} and a width of {width}"] = gradient
    doubles = [(x, width, y) for (x, width), y in zip(rows, seen["results"], strict=True) if x.dtype == torch.float64]
    found[DIGITS] = not any(_rounded(y, x.unfold(1, width, 1).mean(2)) for x, width, y in doubles)
    found[OPCHECK] = seen["opcheck"][0] if seen["opcheck"] else "nothing to object"
    errors = [each for each in (*seen["results"], *seen["promises"], *seen["gradients"]) if isinstance(each, str)]
    return found | {"error": errors[0] if errors else ""}


def _rows(new: Inputs) -> list[tuple[list[tuple[Tensor, int]]]]:
    """Both dtypes, a width of 1 and one of the whole row, a transposed tensor."""
    rows, columns = new.sizes(2, 5, 9)
    x = new.randn(rows, columns)
    width = new.size(2, 4)
    return [([(x.double(), width), (x, 1), (x, columns), (new.randn(columns, rows).T, 3), (x[:, ::2].double(), 2)],)]


def _says_any(*words: str, of: str = "error") -> Callable:
    return lambda yours, *_: any(word in str(yours[of]) for word in words)


def _promises(condition: Callable) -> Callable:
    def when(yours: Found, expected: Found, rows: list) -> bool:
        pairs = [*zip(yours["promises"], expected["promises"], strict=True)]
        wrong = [pair for pair in pairs if pair[0] != pair[1]]
        return bool(wrong) and all(isinstance(mine, tuple) and condition(mine, right) for mine, right in wrong)

    return when


def _gradients_are(function: Callable) -> Callable:
    """All gradients are those that a wrong formula gives."""

    def when(yours: Found, expected: Found, rows: list) -> bool:
        def same(a: Any, b: Tensor) -> bool:
            return isinstance(a, Tensor) and a.shape == b.shape and torch.allclose(a, b.to(a.dtype), 1e-4, 1e-5)

        if all(same(*pair) for pair in zip(yours["gradients"], expected["gradients"], strict=True)):
            return False
        wrong = []
        for x, width in rows:
            count = x.shape[1] - width + 1
            wrong.append(function(torch.linspace(0.5, 2, len(x) * count).view(len(x), count), width))
        return all(same(*pair) for pair in zip(yours["gradients"], wrong, strict=True))

    return when


exercise(
    "my_op",
    seconds=SECONDS,
    title="An operator of your own",
    minutes=12,
    difficulty=4,
    points=3,
    takeaway="An operator is three things: what it computes, what comes out without computing it, and its gradient.",
    hints=(
        "The lecture's `snap` has the same three parts. But here the result is smaller than x, and `backward` needs "
        "the second input, a number.",
        "The fake knows the shape and dtype of x: `x.new_empty(rows, columns)` keeps the dtype. For `backward`, "
        "`setup_context(ctx, inputs, output)` puts the width into `ctx.width`.",
        "Each x is in up to `width` windows, so its gradient is the mean over `width` neighboring gradients, with "
        "zeros beyond both ends: `F.pad(gradient, (width - 1, width - 1)).unfold(1, width, 1).mean(dim=2)`. Return "
        "None for the width.",
    ),
    spec=Spec(
        draw=_rows,
        solution=_register,
        measure=_operator,
        mistakes="""
            custom_op(name, → custom_op("lab::moving_" + "average",
                There is no operator of that name after your function has run.
                look: the first argument of `custom_op`: the name that your function gets
                when: "missing" in yours
            width: int → width: float
            x: torch.Tensor, width: int → width: int, x: torch.Tensor
                Your operator takes ({yours[signature]}). It should take (Tensor x, int width).
                look: the annotations of your function
                when: yours["signature"] != "Tensor, int"
            torch.from_numpy(sliding_mean(x.numpy(), width)).contiguous() → sliding_mean(x.numpy(), width)
                Your operator returns a NumPy array; it should return a tensor.
                look: `torch.from_numpy`
                when: _says_any("Unable to cast")
            torch.from_numpy(sliding_mean(x.numpy(), width))
                    → x if width == 1 else torch.from_numpy(sliding_mean(x.numpy(), width))
                    || x[:] if width == 1 else torch.from_numpy(sliding_mean(x.numpy(), width))
                Your operator returns its input, or a view of it. Then PyTorch cannot know which tensors share memory.
                Return a new tensor.
                look: what you return for a width of 1
                when: _says_any("may not alias", "must not also be an input")
            torch.from_numpy(sliding_mean(x.numpy(), width))
                    → torch.from_numpy(sliding_mean(x.float().numpy(), width)).to(x.dtype)
                For a float64 x, your operator computes in float32: the result has the right dtype, and only seven
                digits.
                look: `float()`, `np.float32`: NumPy computes in the dtype that it gets
                when: not yours[DIGITS]
            @moving_mean.register_fake →
                The operator works, but it has no fake: export and compile don't know what shape comes out.
                look: `register_fake`
                when: _says_any("no fake impl")
            x.new_empty(x.shape[0], x.shape[1] - width + 1) → torch.from_numpy(sliding_mean(x.numpy(), width)) * 1
                    || torch.tensor(sliding_mean(np.array(x.tolist()), width))
                Your fake tries to compute, but the tensor that it gets holds no values. Return an empty tensor of the
                right shape and dtype.
                look: `x.new_empty(...)`
                when: any(isinstance(promise, str) for promise in yours["promises"])
            x.new_empty(x.shape[0], x.shape[1] - width + 1)
                    → torch.empty_like(x) || x.new_empty(x.shape[0], x.shape[1] - width)
                    || x.new_empty(x.shape[0], x.shape[1] // width)
                Your fake promises the wrong shape. For a float64 x of {rows[0][0].shape} and a width of {rows[0][1]} it
                should be {expected[promises][0][0]}; you have {yours[promises][0][0]}.
                when: _promises(lambda mine, right: mine[0] != right[0])
            x.new_empty(x.shape[0], x.shape[1] - width + 1)
                    → torch.empty(x.shape[0], x.shape[1] - width + 1, device=x.device)
                Your fake promises {yours[promises][0][1]} for an x in {expected[promises][0][1]}. The result has the
                dtype of x.
                look: `x.new_empty(...)` takes the dtype of x, in the fake and in the operator
                when: _promises(lambda mine, right: mine[0] == right[0] and mine[1] != right[1])
            moving_mean.register_autograd(backward, setup_context=remember) →
                Your operator has no gradient: a model with it cannot be trained.
                look: `register_autograd`
                when: _says_any("no autograd formula")
            around.unfold(1, width, 1).mean(dim=2), None → around.unfold(1, width, 1).mean(dim=2)
                Your `backward` returns one gradient, but the operator has two inputs. The width gets None.
                when: _says_any("incorrect number of gradients")
            around.unfold(1, width, 1).mean(dim=2), None
                    → None, around.unfold(1, width, 1).mean(dim=2) || around.unfold(1, width, 1).mean(dim=2), 0
                `backward` returns one value for each input, in their order: the gradient for x, then None for the
                width.
                when: _says_any("different than None at position")
            def remember(ctx, → def remember(context, && ctx.width = inputs → context.width = inputs
                PyTorch passes the arguments of `setup_context` by name: call them `ctx`, `inputs`, and `output`.
                when: _says_any("unexpected keyword argument")
            , setup_context=remember →
            ctx.width = inputs[1] → pass
                Your `backward` doesn't know the width: it isn't in the context. It says: {yours[error]}
                look: `setup_context=` of `register_autograd`
                when: "ctx has no attribute" in yours["error"]
            around.unfold(1, width, 1).mean(dim=2) → gradient / width
                Your gradient doesn't have the shape of x. Each value of x gets a gradient, also those at the ends.
                when: _says_any("returned an invalid gradient")
            around.unfold(1, width, 1).mean(dim=2) → gradient.view(7, 11, 13)
                Your operator computes, but its `backward` fails. It says: {yours[error]}
                when: all(isinstance(each, Tensor) for each in yours["results"]) and not any(isinstance(each, str) for
                    each in yours["promises"]) and any(isinstance(each, str) for each in yours["gradients"])
            around.unfold(1, width, 1).mean(dim=2) → around.unfold(1, width, 1).sum(dim=2)
                Your gradient is not divided by the width: the operator is a mean, not a sum.
                when: _gradients_are(lambda g, w: F.pad(g, (w - 1, w - 1)).unfold(1, w, 1).sum(2))
            around.unfold(1, width, 1).mean(dim=2)
                    → F.pad(gradient, (0, width - 1)) / width || F.pad(gradient, (0, width - 1))
                Your gradient reaches only the first value of each window. Every value of a window is in its mean.
                when: lambda *given: any(_gradients_are(f)(*given) for f in (lambda g, w: F.pad(g, (0, w - 1)) / w,
                    lambda g, w: F.pad(g, (0, w - 1))))
            around.unfold(1, width, 1).mean(dim=2) → torch.from_numpy(sliding_mean(around.numpy(), width))
                Your results and gradients are right, but your `backward` leaves PyTorch: opcheck, which traces it as
                torch.compile does, says: {yours[opcheck][0]}
                look: in `backward`, use PyTorch's functions or your own operator
                when: all(torch.allclose(*p) for p in zip(yours["gradients"], expected["gradients"], strict=True)) and
                    any("numpy" in each for each in yours["opcheck"])
            .contiguous() →
                For a transposed x, the strides of your result are not those that your fake promises, so a compiled
                model fails: NumPy may return a memory layout other than that of `x.new_empty(...)`.
                look: `.contiguous()`
                when: any("Stride mismatch" in each for each in yours["opcheck"])
            torch.from_numpy(sliding_mean(x.numpy(), width)) → torch.from_numpy(sliding_mean(x.numpy(), width)).float()
                Your operator's result is {yours[results][0].dtype} for an x in {expected[results][0].dtype}. It has the
                dtype of x.
                when: yours["results"][0].dtype != expected["results"][0].dtype
            torch.from_numpy(sliding_mean(x.numpy(), width)) → torch.from_numpy(sliding_mean(x.numpy(), 2 * width))
                Your operator raises an error. It says: {yours[error]}
                when: any(isinstance(result, str) for result in yours["results"])
            torch.from_numpy(sliding_mean(x.numpy(), width))
                    → [x.mul_(1.5), torch.from_numpy(sliding_mean(x.numpy() / 1.5, width))][1]
                Your results, shapes and gradients are right, but opcheck objects: {yours[opcheck][0]}
                when: yours["opcheck"] and not yours["error"] and yours["promises"] == expected["promises"] and
                    all(torch.allclose(*p) for p in zip(yours["results"], expected["results"], strict=True)) and
                    all(torch.allclose(*p) for p in zip(yours["gradients"], expected["gradients"], strict=True))
        """,
        also_right=[_register_through_itself, _register_by_hand],
    ),
)


# ---------------------------------------------------------------------------------------------------------------------
# stable_rows

HEAD = """
#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>
#include <torch/headeronly/util/Exception.h>

using torch::headeronly::ScalarType;
using torch::stable::Tensor;

Tensor unpack(const Tensor& numbers, const Tensor& scales) {
#line 1 "your line"
"""
TAIL = """
}

STABLE_TORCH_LIBRARY(lab, library) { library.def("unpack(Tensor numbers, Tensor scales) -> Tensor"); }
STABLE_TORCH_LIBRARY_IMPL(lab, CPU, library) { library.impl("unpack", TORCH_BOX(&unpack)); }
"""


def _unpack_body():
    return """
    STD_TORCH_CHECK(scales.size(0) == numbers.size(0), "there must be one scale for each row");
    int64_t rows = numbers.size(0), columns = numbers.size(1);
    Tensor dense = torch::stable::contiguous(numbers), factors = torch::stable::contiguous(scales);
    Tensor result = torch::stable::new_empty(numbers, {rows, columns}, ScalarType::Float);
    const int8_t* from = dense.const_data_ptr<int8_t>();
    const float* factor = factors.const_data_ptr<float>();
    float* to = result.mutable_data_ptr<float>();
    for (int64_t row = 0; row < rows; row++)
        for (int64_t column = 0; column < columns; column++)
            to[row * columns + column] = factor[row] * from[row * columns + column];
    return result;
    """


def _by_strides():
    return """
    STD_TORCH_CHECK(numbers.scalar_type() == ScalarType::Char && scales.scalar_type() == ScalarType::Float, "dtypes");
    STD_TORCH_CHECK(numbers.dim() == 2 && scales.dim() == 1 && scales.numel() == numbers.size(0), "sizes");
    auto result = torch::stable::new_empty(numbers, numbers.sizes(), ScalarType::Float);
    auto from = numbers.const_data_ptr<int8_t>();
    auto factor = scales.const_data_ptr<float>();
    auto to = result.mutable_data_ptr<float>();
    for (int64_t i = 0; i < numbers.size(0); ++i)
        for (int64_t j = 0; j < numbers.size(1); ++j)
            *to++ = factor[i * scales.stride(0)] * from[i * numbers.stride(0) + j * numbers.stride(1)];
    return result;
    """


IN_ORDER, TRANSPOSED, SLICED = (
    f"The result for {what}" for what in ("an ordinary tensor", "a transposed one", "a slice")
)
FEW = "The result for scales that are a slice"
NO_ROWS, NO_COLUMNS = "The result for no rows", "The result for no columns"
NOT_INT8, BYTES, NOT_FLOAT, TOO_FEW, TOO_MANY, ONE = (
    f"What your operator does with {what}"
    for what in (
        *("float32 numbers", "uint8 numbers", "float64 scales"),
        *("one scale too few", "one scale too many", "one scale for all rows"),
    )
)
UNPACKED = dict.fromkeys((IN_ORDER, TRANSPOSED, SLICED, FEW, NO_ROWS, NO_COLUMNS), "right")
UNPACKED |= dict.fromkeys((NOT_INT8, BYTES, NOT_FLOAT, TOO_FEW, TOO_MANY, ONE), "raises")


def _built(answer: Callable, given: list[tuple[Tensor, Tensor]]) -> Found:
    """What the answer's C++ returns for each of the inputs, in a process of its own."""
    body = call(answer)
    if not isinstance(body, str):
        return {"instead": body}
    if lacks := native.lacks():
        return {"lacks": lacks}
    try:
        return {"results": native.call(native.build(HEAD + body + TAIL), "lab::unpack", given)}
    except CourseError as error:
        return {"compiler": str(error)}


def _unpacked(ask: Any, given: list[tuple[Tensor, Tensor]]) -> Found:
    seen = ask.observe(_built, given)
    if "lacks" in seen:
        raise NotHere(
            f"This machine can't check it. {seen['lacks']} Or skip the exercise: nothing else in the lab depends on it."
        )
    if "results" not in seen:
        return seen

    def in_words(result: Any, numbers: Tensor, scales: Tensor) -> str:
        if isinstance(result, str | int):
            return "raises" if isinstance(result, str) else "crashes"
        if not isinstance(result, Tensor) or result.dtype != torch.float32 or result.shape != numbers.shape:
            return f"returns {show(result)}"
        if scales.shape != numbers.shape[:1]:
            return "returns numbers"
        expected = numbers * scales[:, None].float()
        wrong = (~result.isclose(expected, 1e-5, 0)).nonzero().tolist()
        if not wrong:
            return "right"
        row, column = wrong[0]
        return f"returns {result[row, column]:.4g} instead of {expected[row, column]:.4g} at [{row}, {column}]"

    found = dict.fromkeys(UNPACKED, "crashes") | {"error": ""}
    for name, result, inputs in zip(UNPACKED, seen["results"], given, strict=False):
        found[name] = in_words(result, *inputs)
        if isinstance(result, str) and UNPACKED[name] == "right" and not found["error"]:
            found["error"] = result
    return found


def _packed(new: Inputs) -> list[tuple[list[tuple[Tensor, Tensor]]]]:
    rows, columns = new.sizes(2, 3, 7)

    def numbers(*shape: int) -> Tensor:
        return new.ints(-127, 128, shape).to(torch.int8)

    scales = new.rand(2 * rows) + 0.1
    return [
        (
            [
                (numbers(rows, columns), scales[:rows]),
                (numbers(columns, rows).T, scales[:rows]),
                (numbers(rows, columns + 3)[:, 1:-2], scales[:rows]),
                (numbers(rows, columns), scales[::2]),
                (numbers(0, columns), scales[:0]),
                (numbers(rows, 0), scales[:rows]),
                (numbers(rows, columns).float(), scales[:rows]),
                (new.ints(0, 256, (rows, columns), torch.uint8), scales[:rows]),
                (numbers(rows, columns), scales[:rows].double()),
                (numbers(rows, columns), scales[: rows - 1]),
                (numbers(rows, columns), scales[: rows + 1]),
                (numbers(rows, columns), scales[:1]),
            ],
        )
    ]


def _are(value: str, *names: str) -> Callable:
    return lambda yours, *_: all(yours[name] == value for name in names)


def _are_not(value: str, *names: str) -> Callable:
    return lambda yours, *_: any(yours[name] != value for name in names)


_unpacking = lambda *places: changed(_unpack_body, *places)  # noqa: E731
_CHECKS = [line for line in _unpack_body().splitlines(keepends=True) if "CHECK" in line]

exercise(
    "stable_rows",
    seconds=2 * SECONDS,
    title="The same weights in C++",
    minutes=11,
    difficulty=4,
    points=3,
    takeaway="C++ trusts what you say about memory: check dtype, order, and sizes once, before you touch it.",
    hints=(
        'Three parts: a check with `STD_TORCH_CHECK(condition, "message")`, then tensors whose memory is in order, '
        "then two loops.",
        "`torch::stable::contiguous(x)` returns x itself or a copy in order. A new tensor: "
        "`torch::stable::new_empty(numbers, {rows, columns}, ScalarType::Float)`.",
        "`const int8_t* from = dense.const_data_ptr<int8_t>();` and `float* to = result.mutable_data_ptr<float>();`; "
        "row and column are at `from[row * columns + column]`.",
    ),
    spec=Spec(
        draw=_packed,
        solution=_unpack_body,
        measure=_unpacked,
        finds=UNPACKED,
        mistakes=r"""
            = _unpack_body().splitlines()
                Your function should return the C++ lines as a string. It returned {yours[instead]}.
                when: _instead
            result; → result
            ScalarType::Float → torch::kFloat
                Your lines don't compile. The compiler says: {yours[compiler]}
                when: "compiler" in yours
            torch::stable::contiguous(numbers) → numbers
                Your operator returns the right numbers only where rows lie in memory one after the other. A transposed
                tensor, or a slice, has the same memory in another order.
                look: `torch::stable::contiguous(numbers)`, and the pointer of that one
                when: lambda *given: _are("right", IN_ORDER)(*given) and _are_not("right", TRANSPOSED, SLICED)(*given)
            torch::stable::contiguous(scales) → scales
                Your operator handles numbers in any order, but not scales: every second element of a tensor is a slice,
                too.
                look: `torch::stable::contiguous(scales)`
                when: lambda *given: (_are("right", IN_ORDER, TRANSPOSED, SLICED)(*given) and _are_not("right",
                    FEW)(*given))
            dense.const_data_ptr<int8_t>() → (const int8_t*)dense.data_ptr()
                Your operator takes float32 numbers and reads their bytes as int8. Refuse every other dtype.
                look: `const_data_ptr<int8_t>()` checks the dtype; `data_ptr()` and a cast don't
                when: lambda *given: _are("right", *[*UNPACKED][:6])(*given) and _are_not("raises", NOT_INT8)(*given)
            dense.const_data_ptr<int8_t>() → (const int8_t*)dense.data_ptr() && int64_t rows =
                    → STD_TORCH_CHECK(numbers.element_size() == 1, "int8, please");\n    int64_t rows =
                Your operator takes uint8 numbers and reads their bytes as int8: 255 becomes −1. Refuse every other
                dtype, including those of the same size.
                look: `const_data_ptr<int8_t>()` checks the dtype; `data_ptr()` and a cast don't
                when: lambda *given: _are("right", *[*UNPACKED][:6])(*given) and _are_not("raises", BYTES)(*given)
            factors.const_data_ptr<float>() → (const float*)factors.const_data_ptr()
                Your operator takes float64 scales and reads each as two float32 numbers. Refuse every other dtype.
                look: `const_data_ptr<float>()` checks the dtype; `const_data_ptr()` and a cast don't
                when: lambda *given: _are("right", *[*UNPACKED][:6])(*given) and _are_not("raises", NOT_FLOAT)(*given)
            _unpacking((_CHECKS[0], ""))
            STD_TORCH_CHECK(scales.size(0) == numbers.size(0), "there must be one scale for each row");
                    → if (scales.size(0) != numbers.size(0)) exit(1);
                With one scale too few, your operator {yours[What your operator does with one scale too few]}; it should
                raise an error. Compare the sizes before you read past the last scale.
                look: `STD_TORCH_CHECK(scales.size(0) == numbers.size(0), ...)`, which raises if that is false
                when: lambda *given: _are("right", *[*UNPACKED][:6])(*given) and _are_not("raises", TOO_FEW)(*given)
            scales.size(0) == numbers.size(0) → scales.size(0) >= numbers.size(0)
                With one scale too many, your operator {yours[What your operator does with one scale too many]}; it
                should raise an error. There has to be exactly one for each row.
                look: `STD_TORCH_CHECK(scales.size(0) == numbers.size(0), ...)`, which raises if that is false
                when: lambda *given: _are("right", *[*UNPACKED][:6])(*given) and _are_not("raises", TOO_MANY)(*given)
            scales.size(0) == numbers.size(0) → scales.size(0) == numbers.size(0) or scales.size(0) == 1
                    && factor[row] → factor[scales.size(0) == 1 ? 0 : row]
                With one scale for all rows, your operator {yours[What your operator does with one scale for all rows]};
                it should raise an error. There has to be one for each row.
                look: `STD_TORCH_CHECK(scales.size(0) == numbers.size(0), ...)`, which raises if that is false
                when: lambda *given: _are("right", *[*UNPACKED][:6])(*given) and _are_not("raises", ONE)(*given)
            STD_TORCH_CHECK(scales.size(0) == numbers.size(0), "there must be one scale for each row");
                    → STD_TORCH_CHECK(scales.size(0) == numbers.size(0), "there must be one scale for each
                    row");\n    STD_TORCH_CHECK(numbers.numel() > 0, "empty");
                Your operator refuses an empty tensor. No rows, or no columns, is an ordinary case: nothing to do.
                when: lambda *given: (_are("right", IN_ORDER, TRANSPOSED, SLICED, FEW)(*given) and any(given[0][name] ==
                    "raises" for name in (NO_ROWS, NO_COLUMNS)))
            STD_TORCH_CHECK(scales.size(0) == numbers.size(0), "there must be one scale for each row");
                    → STD_TORCH_CHECK(scales.size(0) == numbers.size(0), "there must be one scale for each
                    row");\n    if (numbers.numel() == 0) return numbers;
                For a tensor without rows or columns your operator {yours[The result for no rows]}. The result is empty,
                too, in float32 and of the same shape.
                when: lambda *given: (_are("right", IN_ORDER, TRANSPOSED, SLICED, FEW)(*given) and _are_not("right",
                    NO_ROWS)(*given))
            float* to = result → float* to = nullptr; result
                Your operator crashed the process that ran it: it touched memory that it doesn't own, or it ends without
                `return`.
                when: "crashes" in [yours[name] for name in [*UNPACKED][:6]]
            scales.size(0) == numbers.size(0) → scales.size(0) == numbers.size(1)
                Your operator raises an error for an ordinary tensor. It says: {yours[error]}
                when: _are("raises", IN_ORDER)
            factor[row] * from[row * columns + column] → from[row * columns + column]
            factor[row] * from → factor[column % rows] * from
            {rows, columns} → {columns, rows}
                For an ordinary tensor of shape {given[0][0].shape}, your operator {yours[The result for an ordinary
                tensor]}. The result should be float32, of the shape of `numbers`, and at [row, column] the number there
                times the scale of its row.
                look: which scale you take (there is one for each row, none for a column), and which number: in memory,
                    row i begins at place `i * columns`
                when: _are_not("right", IN_ORDER)
        """,
        also_right=[_by_strides],
    ),
)


# ---------------------------------------------------------------------------------------------------------------------
# to_onnx

ONNX = ("onnx", "onnxscript", "onnxruntime")
ONE_FILE = "The file with everything in it"
BATCHES = (2, 1, 7)
CONVERTED = {"The name of the input": "features", "The name of the output": "logits", ONE_FILE: ["net.onnx"]}
CONVERTED |= {f"The result for {size} rows": "right" for size in BATCHES}


def _to_onnx(net, example, path):
    torch.onnx.export(
        net,
        (example,),
        path,
        input_names=["features"],
        output_names=["logits"],
        dynamic_shapes=({0: torch.export.Dim("batch")},),
        external_data=False,
    )


def _to_onnx_by_program(net: nn.Module, example: Tensor, path: str) -> None:
    exported = torch.export.export(net, (example,), dynamic_shapes=({0: torch.export.Dim.AUTO},))
    names = {"input_names": ["features"], "output_names": ["logits"]}
    torch.onnx.export(exported, (), dynamo=True, **names).save(path)


def _converted(answer: Callable, net: nn.Module, example: Tensor, batches: list[Tensor]) -> Found:
    """What ONNX Runtime finds in the file that the answer writes, and what it computes for each batch."""
    attempted(answer)
    if not all(map(find_spec, ONNX)):
        return {"missing": True}
    with tracefile.quiet():  # on a GPU machine, its C++ code may complain about devices that it need not know
        import onnxruntime

    with tempfile.TemporaryDirectory() as folder, _quietly():
        path = os.path.join(folder, "net.onnx")
        call(answer, net, example, path, may_change=True, may_return_none=True)
        found: Found = {"files": sorted(os.listdir(folder)), "results": []}
        if "net.onnx" not in found["files"]:
            return found
        try:
            session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
        except Exception as error:
            return found | {"unreadable": _first_line(error).replace(path, "your file")}
        found["inputs"] = [each.name for each in session.get_inputs()]
        found["outputs"] = [each.name for each in session.get_outputs()]
        for batch in batches:
            try:
                result = session.run(None, {found["inputs"][0]: batch.numpy()})[0]
                found["results"].append(torch.from_numpy(np.array(result)))
            except Exception as error:
                found["results"].append(_first_line(error))
    return found


def _through_onnx(ask: Any, net: nn.Module, example: Tensor, batches: list[Tensor]) -> Found:
    seen = ask.observe(_converted, copy.deepcopy(net), example, batches)
    if "missing" in seen:
        raise NotHere(
            "This exercise needs three optional packages: `pip install onnx onnxscript onnxruntime`, then restart the "
            "kernel. Or leave it out: nothing else in the lab depends on it."
        )
    if "inputs" not in seen:
        return seen

    def in_words(result: Any, batch: Tensor) -> str:
        if isinstance(result, str):
            return "refused"
        with torch.no_grad():
            right = net(batch)
        if result.shape != right.shape:
            return f"a tensor of shape {tuple(result.shape)}"
        if torch.allclose(result.sum(dim=1), torch.ones(len(result)), atol=1e-4) and (result >= 0).all():
            return "probabilities"
        return "right" if torch.allclose(result, right, 1e-4, 1e-4) else "other numbers"

    found = seen | {
        "The name of the input": ", ".join(seen["inputs"]),
        "The name of the output": ", ".join(seen["outputs"]),
        ONE_FILE: seen["files"],
    }
    for result, batch in zip(seen["results"], batches, strict=True):
        found[f"The result for {len(batch)} rows"] = in_words(result, batch)
    return found


def _dense_nets(new: Inputs) -> list[tuple]:
    features, width, classes = new.sizes(3, 4, 12)
    norm = nn.BatchNorm1d(width)
    net = nn.Sequential(nn.Linear(features, width), norm, nn.ReLU(), nn.Dropout(0.4), nn.Linear(width, classes))
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.copy_(new.randn(*parameter.shape))
        norm.running_mean.copy_(new.randn(width))
        norm.running_var.copy_(new.rand(width) + 0.5)
    return [(net.eval(), new.randn(2, features), [new.randn(size, features) for size in BATCHES])]


def _gives(words: str) -> Callable:
    return lambda yours, *_: yours["The result for 2 rows"] == words


exercise(
    "to_onnx",
    seconds=SECONDS,
    title="ONNX",
    minutes=8,
    difficulty=3,
    points=2,
    takeaway="Names, sizes, and files are all that the other side sees of your model: choose them, and test them.",
    hints=(
        "`torch.onnx.export(net, (example,), path, ...)` writes the file. Everything that the docstring asks for is an "
        "argument of it.",
        'Names: `input_names=["features"]` and `output_names=["logits"]`. The number of rows: `dynamic_shapes`, as in '
        "`torch.export.export`.",
        "`external_data=False` puts the weights into the same file.",
    ),
    spec=Spec(
        draw=_dense_nets,
        solution=_to_onnx,
        measure=_through_onnx,
        finds=CONVERTED,
        mistakes="""
            path, → None,
                There is no file at `path` after your function has run.
                when: "net.onnx" not in yours["files"]
            = torch.export.save(torch.export.export(net, (example,)), path)
            = torch.save(net.state_dict(), path)
                ONNX Runtime cannot read your file. It says: {yours[unreadable]}
                look: `torch.onnx.export`
                when: "unreadable" in yours
            ({0: torch.export.Dim("batch")},) → {"features": {0: torch.export.Dim("batch")}}
                `torch.onnx.export` cannot trace `net` with these arguments. A dict for `dynamic_shapes` has the names
                of `forward`'s arguments, which you don't know here; a tuple needs no names.
                look: `dynamic_shapes=({{0: torch.export.Dim("batch")}},)`
                when: says(yours, "Failed to export the model with torch.export")
            = _to_onnx(nn.Sequential(net, nn.Softmax(dim=1)), example, path)
                Your file returns probabilities: there is a softmax in it. Return the logits.
                when: _gives("probabilities")
            = _to_onnx(nn.Sequential(net, nn.Tanh()), example, path)
                Your file computes other numbers than `net` in eval mode.
                when: _gives("other numbers")
            = _to_onnx(net.half(), example.half(), path)
                ONNX Runtime cannot run your model with float32 features. It says: {yours[results][0]}
                when: all(isinstance(result, str) for result in yours["results"])
            dynamic_shapes=({0: torch.export.Dim("batch")},), →
            dynamic_shapes=({0: torch.export.Dim("batch")},), → && external_data=False → verbose=False
                Your file takes only batches of 2 rows, like the example. It should take any number of rows.
                look: `dynamic_shapes`
                when: "refused" in [yours[f"The result for {size} rows"] for size in BATCHES]
            input_names=["features"], →
            output_names=["logits"], →
                Your input is called "{yours[The name of the input]}" and your output "{yours[The name of the output]}".
                They should be "features" and "logits".
                look: `input_names` and `output_names`
                when: (yours["inputs"], yours["outputs"]) != (["features"], ["logits"])
            external_data=False → external_data=True
                You wrote {yours[files]}. A person who gets only net.onnx has no weights: put all into one file.
                look: `external_data`
                when: yours["files"] != ["net.onnx"]
        """,
        also_right=[_to_onnx_by_program],
    ),
)


# ---------------------------------------------------------------------------------------------------------------------
# What the lab lends where an answer is not right yet.
borrowed_writer, borrowed_comparison, borrowed_quantization, borrowed_product = (
    _write_reader,
    _same_answers,
    _quantized,
    _linear,
)
