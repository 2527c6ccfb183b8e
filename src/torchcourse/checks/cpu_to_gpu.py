"""The exercises of chapter 03: back to NumPy, weights that stay, a migrated training, waits that hide.

They run on `simgpu.accelerator()`: the machine's own GPU, or the practice GPU where there is none. What travels and
where Python waits is counted by `simgpu.trace()`, which also knows the line of the answer that did it.
"""

import copy
import re
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from torchcourse import simgpu
from torchcourse.checks.engine import AnswerRaised, Incorrect, Inputs, call, chapter, mistake, same
from torchcourse.trace import Event, Trace

# The first optimizer of a process imports much of PyTorch, which takes seconds on a slow machine.
SLOW_START = 30.0

exercise = chapter("03_cpu_to_gpu")
Batch = tuple[Tensor, Tensor]


# ---------------------------------------------------------------------------------------------------------------------
# What the judges below share


def network(new: Inputs, pixels: int, classes: int, norm: bool = False) -> nn.Sequential:
    """A small classifier of images with `pixels` pixels, on the CPU; the weights come from `new`."""
    layers: list[nn.Module] = [nn.Flatten(), nn.Linear(pixels, 6)]
    layers += [nn.BatchNorm1d(6)] if norm else []
    model = nn.Sequential(*layers, nn.ReLU(), nn.Linear(6, classes))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(new.randn(*parameter.shape) / 2)
    return model


def on(model: nn.Module, place: torch.device) -> nn.Module:
    """A copy of a model of the CPU, on another device."""
    return copy.deepcopy(model).to(place)


def weights(model: nn.Module) -> Tensor:
    """All parameters in one row, on the CPU."""
    return torch.cat([parameter.detach().cpu().flatten() for parameter in model.parameters()])


def here(device: torch.device | str) -> str:
    """ "the CPU" or "the device", for messages."""
    return "the CPU" if torch.device(device).type == "cpu" else "the device"


def where(events: Sequence[Event]) -> str:
    """The line of the answer that did it most often, for "look at"."""
    (number, line), times = Counter((event.number, event.line) for event in events).most_common(1)[0]
    return f"line {number}: `{line}`" + (f" ({times} times)" if times > 1 else "")


def watched(answer: Any, *args: Any, **kwargs: Any) -> tuple[Any, Trace]:
    """What the answer returns, and the trace of what it did."""
    with simgpu.trace() as seen:
        result = call(answer, *args, may_change=True, **kwargs)
    return result, seen


def waits(seen: Trace) -> list[Event]:
    """The moments at which Python waited for the device: for a value, or for a copy back."""
    return list(seen.syncs)


def python_numbers(values: Any, count: int, what: str) -> list[float]:
    """A list (or tuple) of `count` Python numbers; raises Incorrect for anything else."""
    if isinstance(values, Tensor):
        raise Incorrect(f"{what} are a tensor, which still lies on {here(values.device)}.", "a list of Python numbers",
                        look="`.tolist()` makes Python numbers")  # fmt: skip
    if not isinstance(values, (list, tuple)):
        raise Incorrect(f"{what} are not a list.", f"a list of {count} Python numbers", values)
    if any(isinstance(value, Tensor) for value in values):
        raise Incorrect(
            f"{what} are tensors, each of which keeps device memory.",
            "Python numbers",
            values,
            "read them once, after the loop: `torch.stack(...).tolist()`",
        )
    if len(values) != count or not all(isinstance(v, (int, float, np.number)) for v in values):
        raise Incorrect(f"{what} are not right.", f"a list of {count} numbers", values)
    return [float(value) for value in values]


def close(a: float, b: float) -> bool:
    return abs(a - b) <= 1e-4 + 1e-3 * abs(b)


# ---------------------------------------------------------------------------------------------------------------------


@exercise(
    "to_numpy",
    title="Back to NumPy",
    minutes=5,
    difficulty=1,
    points=1,
    takeaway="detach leaves the graph, cpu leaves the device, and a copy of your own makes it safe on every machine.",
    hints=(
        "Three things can be in the way: a graph, a device, and memory that is shared. Remove one after the other.",
        "`.detach()`, then `.cpu()`, then `.numpy()`. On the CPU the result still shares its memory with the tensor.",
        "`tensor.detach().cpu().numpy()` and one more word that makes a copy.",
    ),
)
def to_numpy(answer: Any, new: Inputs) -> None:
    gpu = simgpu.accelerator()
    rows, columns = new.sizes(2, 2, 6)
    values = new.randn(rows, columns)
    cases = [  # name for messages, a tensor, the word that is missing when it raises
        ("on the CPU", values.clone(), "`.numpy()`"),
        ("of whole numbers", new.ints(0, 9, (rows,)), "the dtype stays as it is"),
        ("on the device", values.to(gpu), "`.cpu()` comes before `.numpy()`"),
        ("with a graph, on the CPU", values.clone().requires_grad_() * 2, "`.detach()` leaves the graph"),
        ("with a graph, on the device", values.to(gpu).requires_grad_() * 2, "`.detach()` leaves the graph"),
        ("that is a parameter", nn.Parameter(values.clone()), "`.detach()` leaves the graph"),
    ]
    for name, tensor, look in cases:
        expected, needed = tensor.detach().cpu().clone().numpy(), tensor.requires_grad
        try:
            yours = call(answer, tensor, may_change=True)
        except AnswerRaised as raised:
            if not isinstance(raised.error, (RuntimeError, TypeError)):
                raise
            raise Incorrect(
                f"Your function fails for a tensor {name}.", "a NumPy array", f"{type(raised.error).__name__}", look
            ) from None
        if tensor.requires_grad != needed or (tensor.grad_fn is None and "graph" in name):
            raise Incorrect(
                "Your function took the graph away from the tensor itself: nobody can train with it any more.",
                look="`detach()` without an underscore returns a new tensor",
            )
        if isinstance(yours, Tensor):
            raise Incorrect("Your result is still a tensor.", "a NumPy array", look="`.numpy()`")
        if not isinstance(yours, np.ndarray):
            raise Incorrect("Your result is not an array.", "a NumPy array", yours)
        if yours.shape != expected.shape:
            raise Incorrect(f"The array of a tensor {name} has the wrong shape.", expected.shape, yours.shape)
        if yours.dtype != expected.dtype:
            raise Incorrect(
                f"The array of a tensor {name} has another dtype.",
                str(expected.dtype),
                str(yours.dtype),
                "`.numpy()` keeps the dtype; a way through Python numbers does not",
            )
        if not np.array_equal(yours, expected):
            raise Incorrect(f"The array of a tensor {name} has other values.", expected, yours)
    for name, tensor, _ in cases:
        expected, yours = tensor.detach().cpu().clone().numpy(), call(answer, tensor, may_change=True)
        with torch.no_grad():
            tensor.add_(1)  # the training goes on
        if not np.array_equal(yours, expected):
            raise Incorrect(
                f"Your array shares its memory with a tensor {name}: when the training goes on, the array changes.",
                "an array of its own",
                "an array that changed when the tensor was changed",
                "`.copy()` or `.clone()` makes a copy on every machine",
            )


@exercise(
    "keep_weights",
    title="Weights that stay",
    minutes=6,
    difficulty=2,
    points=2,
    takeaway="`.cpu()` is a copy only when there is something to bring back. To keep values, clone.",
    hints=(
        "Where does `.cpu()` copy, and where does it hand back the same memory? Which machine has no device?",
        "The tensors of `state_dict()` share their memory with the model. `.detach()` shares as well.",
        "`{name: value.detach().cpu().clone() for name, value in model.state_dict().items()}`",
    ),
)
def keep_weights(answer: Any, new: Inputs) -> None:
    gpu = simgpu.accelerator()
    pixels, classes = new.sizes(2, 3, 8)
    for place in (gpu, torch.device("cpu")):
        model = on(network(new, pixels, classes, norm=True), place)
        expected = {name: value.detach().cpu().clone() for name, value in model.state_dict().items()}
        yours = call(answer, model, may_change=True)
        if any(value.device.type != place.type for value in model.state_dict().values()):
            raise Incorrect(
                "Your function moved the model itself: the next training step meets data on another device.",
                f"the model stays on {here(place)}",
                "`model.cpu()` works in place",
                "move the values, not the model",
            )
        if not isinstance(yours, dict):
            raise Incorrect("Your function does not return a dictionary.", "name → tensor, as in `state_dict()`", yours)
        missing = sorted(set(expected) - set(yours))
        if missing:
            buffers = all(name not in dict(model.named_parameters()) for name in missing)
            raise Incorrect(
                "The buffers are missing: batch norm's running statistics belong to the model as well."
                if buffers
                else "Some entries are missing.",
                f"all {len(expected)} entries of `state_dict()`",
                f"without {missing[0]!r}",
                "`model.state_dict()` has parameters and buffers",
            )
        if set(yours) != set(expected):
            raise Incorrect(
                "There are entries that the model does not have.", sorted(expected), sorted(map(str, yours))
            )
        for name, value in yours.items():
            if not isinstance(value, Tensor):
                raise Incorrect(f"The entry {name!r} is not a tensor.", "a tensor on the CPU", value)
            if value.device.type != "cpu":
                raise Incorrect(
                    f"The entry {name!r} is still on the device: kept weights would fill its memory.",
                    "a tensor on the CPU",
                    str(value.device),
                    "`.cpu()`",
                )
            if value.requires_grad:
                raise Incorrect(
                    f"The entry {name!r} still has a graph, or is a parameter itself.",
                    "plain values",
                    "requires_grad=True",
                    "`.detach()`, or take the values from `state_dict()`",
                )
        for name, value in yours.items():
            same(value, expected[name], f"The entry {name!r}")
        with torch.no_grad():
            for value in (*model.parameters(), *model.buffers()):
                value.add_(1)  # the training goes on
        for name, value in yours.items():
            if not torch.equal(value, expected[name]):
                raise Incorrect(
                    f"On {here(place)} your kept weights change when the training goes on: {name!r} shares its memory "
                    "with the model.",
                    "the values at the time of the call",
                    "the values of now",
                    "on the CPU neither `.detach()` nor `.cpu()` copies; what does?",
                )


@exercise(
    "migrate_training",
    seconds=SLOW_START,
    title="Move a training",
    minutes=12,
    difficulty=3,
    points=3,
    takeaway="Model before the loop, bytes once per batch, one reading per epoch: that is the whole migration.",
    hints=(
        "Three things have to be on the device: the model (once), the images and the labels (once per batch). "
        "And one thing has to come back: a number, once per epoch.",
        "`model.to(device)` stands before the loop. `images.to(device)` comes before `.float()`: bytes travel. "
        "`loss.item()` waits in each step: add up `loss.detach()` instead.",
        "`total = torch.zeros((), device=device)`, in the loop `total += loss.detach()`, "
        "after the loop `losses.append(total.item() / len(batches))`.",
    ),
)
def migrate_training(answer: Any, new: Inputs) -> None:
    gpu = simgpu.accelerator()
    count, epochs = new.size(4, 6), new.size(2, 3)
    sizes: list[int] = [0, 0]
    while len(set(sizes)) < len(sizes):  # copies are told apart by their bytes
        (height, width), classes, size = new.sizes(2, 3, 6), new.size(3, 5), new.size(6, 9)
        model = network(new, height * width, classes)
        pixels = height * width
        sizes = [size * pixels, 4 * size * pixels, pixels, 4 * pixels, 8 * size, 4 * size, 8]
        sizes += [parameter.nbytes for parameter in model.parameters()]
    batches = [(new.images(size, 1, height, width), new.ints(0, classes, (size,))) for _ in range(count)]
    reference, untrained = on(model, gpu), weights(model)
    losses = _train(reference, batches, gpu, epochs)

    yours, seen = watched(answer, model, copy.deepcopy(batches), gpu, epochs)
    if any(parameter.device.type != gpu.type for parameter in model.parameters()):
        if seen.to_device and seen.kernels:
            raise Incorrect(
                "The device did work, but the model that came in is not there: you trained a copy, or moved it back.",
                f"all parameters of the model on {gpu}, trained",
                "parameters on the CPU",
                "`model.to(device)` moves the model itself, and there it stays",
            )
        raise Incorrect(
            "The model stayed on the CPU, and so did the work.",
            f"all parameters on {gpu}",
            "parameters on the CPU",
            "`model.to(device)` before the loop",
        )
    if isinstance(yours, tuple):
        yours = list(yours)
    if isinstance(yours, list) and len(yours) == epochs * count:
        raise Incorrect("There is one loss for each batch.", f"one for each epoch: {epochs}", f"{len(yours)} losses")
    got = python_numbers(yours, epochs, "Your losses")
    mistake(got, [loss * count for loss in losses], "Your losses are sums over the batches.", "divide by their number")
    mistake(weights(model), untrained, "The weights are what they were: nothing was learned.", "the optimizer's `step`")
    for value, wanted in zip(got, losses, strict=True):
        if not close(value, wanted):
            raise Incorrect(
                "Your losses are not those of the script on the CPU: something besides the device has changed.",
                f"{wanted:.5f}",
                f"{value:.5f}",
                "keep optimizer, learning rate, order of the lines, and the mean over the batches as they are",
            )
    same(weights(model), weights(reference), "The trained model (all its weights in one row)", rtol=1e-3, atol=1e-4)
    _judge_travel(seen, batches, epochs)


def _train(model: nn.Module, batches: list[Batch], device: torch.device, epochs: int) -> list[float]:
    """The migrated training."""
    optimizer, losses = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9), []
    for _ in range(epochs):
        total = torch.zeros((), device=device)
        for images, labels in batches:
            images, labels = images.to(device), labels.to(device)
            loss = F.cross_entropy(model(images.float() / 255), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.detach()
        losses.append(total.item() / len(batches))
    return losses


def _judge_travel(seen: Trace, batches: list[Batch], epochs: int) -> None:
    """Raise Incorrect unless two tensors per batch travel there, and one number per epoch comes back."""
    images, labels = batches[0]
    count, size = len(batches), len(images)
    floats = [event for event in seen.to_device if event.bytes == 4 * images.numel()]
    if floats:
        raise Incorrect(
            "The images travel as floats: four times the bytes.",
            f"{images.numel():,} bytes for a batch of uint8 images",
            f"{floats[0].bytes:,} bytes",
            where(floats) + "; first `.to(device)`, then `.float()`",
        )
    single = [event for event in seen.to_device if event.bytes in (images.numel() // size, 8)]
    if len(single) > size:
        raise Incorrect(
            "The images or labels travel one by one, and each copy has to be started.",
            f"{2 * count * epochs} copies of whole batches",
            f"{len(seen.to_device)} copies",
            where(single),
        )
    of_images = [event for event in seen.to_device if event.bytes == images.numel()]
    of_labels = [event for event in seen.to_device if event.bytes == labels.numel() * labels.element_size()]
    for events, what in ((of_images, "images"), (of_labels, "labels")):
        if len(events) > count * epochs:
            raise Incorrect(
                f"The {what} of a batch travel more than once.",
                f"{count * epochs} copies, one for each batch",
                f"{len(events)} copies",
                where(events),
            )
    back = [event for event in seen.to_host if event.bytes > 8]
    if len(back) > epochs:
        raise Incorrect(
            "Whole tensors come back in the loop, although only a number is needed.",
            "one number for each epoch",
            f"{len(back)} copies back",
            where(back),
        )
    found = waits(seen)
    if len(found) > epochs:
        raise Incorrect(
            "Python waits for a value in the inner loop.",
            f"at most {epochs} waits, one for each epoch",
            f"{len(found)} waits",
            where(found),
        )


@exercise(
    "quiet_evaluation",
    title="Find the hidden waits",
    minutes=8,
    difficulty=3,
    points=3,
    takeaway="A decision in Python about a value on the device is a wait. Let the device decide: maximum, where, sums.",
    hints=(
        "Go through the loop and ask at each line: does Python have to know a value, or a size that depends on values?",
        "`if` on a tensor is one, selecting with a mask is another, `float(...)` is the third. "
        "`torch.maximum` chooses on the device; a mask can be summed.",
        "`worst = torch.maximum(worst, losses.max())`, `sure += (top > 0.9).sum()`, "
        "and the numbers are read after the loop.",
    ),
)
def quiet_evaluation(answer: Any, new: Inputs) -> None:
    gpu = simgpu.accelerator()
    pixels, classes, size, count = new.size(5, 9), new.size(3, 5), new.size(12, 18), new.size(6, 9)
    model = on(network(new, pixels, classes), gpu).eval()
    sizes = [size] * (count - 1) + [new.size(3, 5)]  # the last batch is short
    batches, expected, means = [], (0.0, 0.0, 0), 0.0
    while expected[0] in (0, 1) or expected[2] in (0, sum(sizes)) or close(means, expected[0]):
        batches = [((3 * new.randn(n, pixels)).to(gpu), new.ints(0, classes, (n,)).to(gpu)) for n in sizes]
        expected = _quiet(model, batches)
        means = sum(_quiet(model, [batch])[0] for batch in batches) / count
    recorded: list[bool] = []
    hook = model.register_forward_hook(lambda _, given, out: recorded.append(out.requires_grad))
    yours, seen = watched(answer, model, batches)
    hook.remove()
    if not isinstance(yours, (tuple, list)) or len(yours) != 3:
        raise Incorrect("Your function does not return three numbers.", "(accuracy, worst, sure)", yours, "`return`")
    if any(isinstance(value, Tensor) for value in yours):
        raise Incorrect(
            "Your function returns tensors. Whoever prints them waits, only later.",
            "three Python numbers",
            yours,
            "read them once, after the loop",
        )
    found = waits(seen)
    if len(found) > 3:
        text = where(found)
        (kind, advice) = _kind_of_wait(text)
        left = sum(times >= count for times in Counter((event.number, event.line) for event in found).values())
        more = f" {left} lines wait in the loop." if left > 1 else ""
        raise Incorrect(
            f"Python still waits in the loop: {kind}.{more}",
            "at most 3 waits, after the loop",
            f"{len(found)} waits for {count} batches",
            f"{text}; {advice}",
        )
    got = [float(value) if isinstance(value, (int, float, np.number)) else float("nan") for value in yours]
    if close(got[0], means):
        raise Incorrect(
            "Your accuracy is the mean of the batches' means: the short last batch counts as much as a full one.",
            f"{expected[0]:.5g}",
            f"{got[0]:.5g}",
            "sum the right answers, divide once by `seen`",
        )
    if close(got[0], expected[0] * sum(sizes)):
        raise Incorrect("The first number is a count.", "the share of right answers", yours[0], "divide by `seen`")
    for value, wanted, what in zip(got, expected, ("accuracy", "largest loss", "count of sure answers"), strict=True):
        if not close(value, wanted):
            raise Incorrect(f"The {what} is not right.", f"{wanted:.5g}", f"{value:.5g}", f"how the {what} is kept")
    if any(recorded):
        raise Incorrect(
            "A graph was recorded, although nobody calls backward: what you keep of a batch keeps all of its memory.",
            "gradients switched off",
            "gradients switched on",
            "`with torch.no_grad():` around the loop",
        )


def _quiet(model: nn.Module, batches: list[Batch]) -> tuple[float, float, int]:
    """Accuracy, largest loss, and the number of answers with more than 0.9: read once."""
    right, worst, sure, seen = 0, torch.zeros((), device=batches[0][0].device), 0, 0
    with torch.no_grad():
        for images, labels in batches:
            logits = model(images)
            right = right + (logits.argmax(1) == labels).sum()
            worst = torch.maximum(worst, F.cross_entropy(logits, labels, reduction="none").max())
            sure = sure + (logits.softmax(1).amax(1) > 0.9).sum()
            seen += len(labels)
    return right.item() / seen, worst.item(), sure.item()


def _kind_of_wait(line: str) -> tuple[str, str]:
    """What kind of wait a line of the exercise is, and what replaces it."""
    if re.search(r"\b(if|while)\b", line):
        return "an `if` has to know a value of the device", "`torch.maximum` decides on the device"
    if re.search(r"\bfloat\(|\bint\(|\.item\(|\.tolist\(|\.cpu\(", line):
        return "a number is read for each batch", "keep the sum on the device and read it after the loop"
    if re.search(r"(?<![\w.])max\(", line):
        return "Python's `max` compares values of the device", "`torch.maximum` decides on the device"
    if re.search(r"\w\[|nonzero|masked_select", line):
        return "the size of a masked selection depends on values", "count a mask with `.sum()`"
    return "a value of the device is read for each batch", "keep it on the device until after the loop"


@exercise(
    "choose_batch_size",
    title="Choose a batch size",
    minutes=5,
    difficulty=2,
    points=2,
    takeaway="Take the smallest batch that is nearly as quick as the quickest: what is larger costs memory and steps.",
    hints=(
        "First strike out what does not fit into the memory. Then: what is the best throughput among the rest?",
        "Of the sizes that reach `share` times that best throughput, the smallest one is wanted. "
        "The dictionary need not be in order.",
        "`fits = {size: rate for size, rate in curve.items() if size <= largest}`, "
        "then `min(size for size, rate in fits.items() if rate >= share * ...)`.",
    ),
)
def choose_batch_size(answer: Any, new: Inputs) -> None:
    first, top = new.size(0, 3), 100 * new.size(100, 900)
    nearly = new.pick((0.74, 0.75, 0.76))
    # Relative throughputs, so chosen that every mistake has a batch size of its own. The last two do not fit.
    bumpy = [0.3, 0.5, 0.8, 0.92, 0.96, 1.0, 0.95, 1.1, 1.2]
    smooth = [0.1, 0.19, 0.34, 0.56, 0.78, 0.9, 0.96, 1.0]  # here everything fits
    # Here the best is the largest that fits, and one size has exactly half of its throughput.
    edge = [0.2, 0.45, 0.5, 0.8, 1.0, 1.2]
    for shape, fitting, front, share in ((bumpy, 7, 4, nearly), (smooth, 8, 6, nearly), (edge, 5, 3, 0.5)):
        sizes = [2 ** (first + i) for i in range(len(shape))]
        largest = sizes[fitting - 1] + (0 if shape is edge else new.size(0, 1))
        order = [front, *(int(i) for i in new.permutation(len(sizes)) if i != front)]
        curve = {sizes[i]: round(top * shape[i]) for i in order}
        fits = {size: rate for size, rate in curve.items() if size <= largest}
        good = [size for size, rate in fits.items() if rate >= share * max(fits.values())]
        expected = min(good)
        yours = call(answer, curve, share, largest)
        if isinstance(yours, Tensor) and yours.numel() == 1:
            yours = yours.item()
        if not isinstance(yours, (int, float, np.number)) or isinstance(yours, bool):
            raise Incorrect("Your result is not a batch size.", f"one of {sorted(curve)}", yours)
        if yours == expected:
            continue
        if shape is edge and yours == sizes[1]:
            text = f"You struck out {largest}, which fits: largest is itself a size that fits."
        elif shape is edge and yours == sizes[3]:
            text = f'You left out a size with exactly {share} of the best throughput: "at least" takes it in.'
        elif yours in curve.values():
            text = "This is a throughput; wanted is the batch size that reaches it."
        elif yours not in curve:
            raise Incorrect("This batch size was never measured.", f"one of {sorted(curve)}", yours)
        elif yours > largest:
            text = f"This batch does not fit: the largest that does is {max(fits)}."
        elif curve[int(yours)] < share * max(fits.values()):
            text = f"This batch is too slow: it does not reach {share} of the best throughput that fits."
        elif yours == max(fits, key=fits.get):
            text = "This is the quickest batch, not the smallest that is nearly as quick."
        elif yours == max(good):
            text = "This is the largest good batch; wanted is the smallest."
        elif yours == good[0]:
            text = "This is the first good batch in the order of the dictionary, which need not be sorted."
        else:
            text = "You compared with the best of the whole curve. A batch that does not fit is no competitor."
        look = f"curve {dict(sorted(curve.items()))}, share {share}, largest {largest}"
        raise Incorrect(text, f"{expected} ({curve[expected]:,} images/s)", f"{yours}", look)


@exercise(
    "accumulate_epoch",
    seconds=SLOW_START,
    title="Stretch: an epoch in small pieces, read once",
    minutes=10,
    difficulty=4,
    points=3,
    takeaway="Gradients add up, so pieces give the step of the whole batch, in a fraction of the memory.",
    hints=(
        "Gradients add up over `backward` calls. Clear them once per batch, step once per batch.",
        "cross_entropy gives the mean of the piece. The mean of the batch is the sum over the pieces of "
        "(mean of the piece) · (rows of the piece) / (rows of the batch).",
        "`for x, y in zip(images.split(rows), labels.split(rows)):` "
        "`loss = F.cross_entropy(model(x), y) * len(x) / len(images)`, then `loss.backward()`.",
    ),
)
def accumulate_epoch(answer: Any, new: Inputs) -> None:
    gpu = simgpu.accelerator()
    pixels, classes, count = new.size(5, 9), new.size(3, 5), new.size(4, 6)
    rows = new.size(4, 6)
    sizes = [3 * rows + new.size(1, 2), 2 * rows + 1, *(3 * rows - 1 for _ in range(count - 2))]
    batches = [(new.randn(size, pixels), new.ints(0, classes, (size,))) for size in sizes]
    start = network(new, pixels, classes)
    # Old gradients, as somebody's backward before may have left them; a copy of a model comes without its gradients.
    left = [new.randn(*parameter.shape) for parameter in start.parameters()]

    def with_old(model: nn.Module) -> nn.Module:
        for parameter, gradient in zip(model.parameters(), left, strict=True):
            parameter.grad = gradient.to(parameter.device, copy=True)
        return model

    def reference(
        weigh: Callable[[int, int], float], clear: bool = False, steps: bool = False, old: str = ""
    ) -> tuple[Tensor, float]:
        """Weights and mean loss after an epoch on the CPU, for a way to weigh pieces.

        clear, steps: for each piece; old: gradients that stay, "always", "at first" or "from batch to batch".
        """
        model = with_old(copy.deepcopy(start))
        optimizer, total = torch.optim.SGD(model.parameters(), lr=0.1), 0.0
        for i, (images, labels) in enumerate(batches):
            if not (old == "always" or (old == "at first" and i == 0) or (old == "from batch to batch" and i > 0)):
                optimizer.zero_grad()
            for x, y in zip(images.split(rows), labels.split(rows), strict=True):
                if clear:
                    optimizer.zero_grad()
                loss = F.cross_entropy(model(x), y)
                (loss * weigh(len(x), len(images))).backward()
                total += loss.item() * len(x)
                if steps:
                    optimizer.step()
            if not steps:
                optimizer.step()
        return weights(model), total / sum(sizes)

    right, mean = reference(lambda piece, batch: piece / batch)
    watch = _Rows()
    model = with_old(nn.Sequential(watch, *copy.deepcopy(start)).to(gpu))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    alive, most = [0], [0]  # graphs that wait for their backward

    def count_graphs(_: nn.Module, given: Any, out: Tensor) -> None:
        if out.requires_grad:
            alive[0] += 1
            most[0] = max(most[0], alive[0])
            out.register_hook(lambda gradient: alive.__setitem__(0, alive[0] - 1))

    hook = model.register_forward_hook(count_graphs)
    yours, seen = watched(answer, model, copy.deepcopy(batches), optimizer, gpu, rows)
    hook.remove()
    after = weights(model)
    if not watch.rows:
        raise Incorrect("The model was never called.", look="`model(...)`")
    if max(watch.rows) > rows:
        raise Incorrect(
            "A piece is too large for the memory.", f"at most {rows} rows", f"{max(watch.rows)} rows", "`split(rows)`"
        )
    if sum(watch.rows) < sum(sizes):
        raise Incorrect(
            "Some rows never reached the model.",
            f"{sum(sizes)} rows",
            f"{sum(watch.rows)} rows",
            "the last, short piece",
        )
    look = "clear once per batch, backward for every piece, step once per batch"
    mistake(after, weights(start), "The weights are what they were: nothing was learned.", look)
    wrong = [
        (reference(lambda piece, batch: 1.0), "Your step is too large: each piece counts as if it were the batch."),
        (
            reference(lambda piece, batch: 1.0 / -(-batch // rows)),
            "A short piece counts as much as a full one: weigh each piece by its rows.",
        ),
        (
            reference(lambda piece, batch: piece / batch, clear=True),
            "The gradients are cleared for every piece, so only the last one is left for the step.",
        ),
        (reference(lambda piece, batch: 1.0, steps=True, clear=True), "There is a step for every piece."),
        (reference(lambda piece, batch: piece / batch, steps=True, clear=True), "There is a step for every piece."),
        (reference(lambda piece, batch: 1.0, steps=True), "There is a step for every piece."),
        (reference(lambda piece, batch: piece / batch, steps=True), "There is a step for every piece."),
    ]
    stay = "Old gradients are still there: `backward()` adds to them, also to those of the batch before."
    for old in ("always", "from batch to batch"):
        wrong.append((reference(lambda piece, batch: piece / batch, old=old), stay))
    wrong += [
        (
            reference(lambda piece, batch: piece / batch, old="at first"),
            "The gradients from before went into the first step: clear them before the first batch as well.",
        ),
        (
            reference(lambda piece, batch: float(piece)),
            "Your step follows the sum over the images; the loss of a batch is their mean.",
        ),
        (
            reference(lambda piece, batch: piece / rows),
            "You divided by the rows of a piece; the mean of the batch divides by the rows of the batch.",
        ),
    ]
    for (result, _), text in wrong:
        mistake(after, result, text, look)
    same(after, right, "The trained model (all its weights in one row)", rtol=1e-3, atol=1e-4, look=look)
    whole = [event for event in seen.to_device if event.bytes in {4 * pixels * size for size in sizes}]
    if whole:
        raise Incorrect(
            "A whole batch travels to the device, and there it does not fit.",
            f"at most {rows} images at a time: {4 * pixels * rows} bytes",
            f"{whole[0].bytes} bytes",
            where(whole) + "; first split, then `.to(device)`",
        )
    if most[0] > 1:
        raise Incorrect(
            "The graphs of several pieces are there at the same time: together they need the memory of a whole batch.",
            "`backward()` for each piece before the next one",
            f"{most[0]} pieces before a `backward()`",
            "the place of `backward()`",
        )
    if isinstance(yours, Tensor):
        raise Incorrect(
            "Your result is a tensor: whoever prints it waits, only later.", "a Python float", yours, "`.item()`"
        )
    value = python_numbers([yours], 1, "Your result")[0]
    if not close(value, mean):
        text = "Your loss is a sum over the images." if close(value, mean * sum(sizes)) else "Your loss is not right."
        raise Incorrect(text, f"{mean:.5f}, the mean over all images", f"{value:.5f}", "a short piece weighs less")
    found = waits(seen)
    if len(found) > 1:
        raise Incorrect(
            "Python waits more than once in this epoch.", "1 wait, at the end", f"{len(found)} waits", where(found)
        )


class _Rows(nn.Module):
    """A layer that changes nothing and writes down how many rows came."""

    def __init__(self) -> None:
        super().__init__()
        self.rows: list[int] = []

    def forward(self, x: Tensor) -> Tensor:
        self.rows.append(len(x))
        return x
