"""The exercises of chapter 04: convolution by hand, a network to a budget, a data set, going on exactly."""

import copy
import functools
import io
import math
from collections.abc import Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.data import DataLoader

from torchcourse import data
from torchcourse.checks.engine import AnswerRaised, Incorrect, Inputs, attempted, call, chapter, mistake, same

# The first optimizer of a process imports much of PyTorch, which takes seconds on a slow machine.
SLOW_START = 30.0
BUDGET = 20_000  # parameters of small_net
STEPS = 80  # batches that train_garments gets
ENOUGH = 0.65  # accuracy after so few steps: sound trainings are above, real garments or drawn, unsound ones far below

exercise = chapter("04_mnist_cnn")


def _with_our_words(answer: Any, *args: Any, **kwargs: Any) -> Any:
    """`call`, for arguments of ours that may raise Incorrect while the answer uses them."""
    try:
        return call(answer, *args, may_change=True, **kwargs)
    except AnswerRaised as raised:
        if isinstance(raised.error, Incorrect):
            raise raised.error from None
        raise


# ---------------------------------------------------------------------------------------------------------------------


@exercise(
    "conv_size",
    title="How large is the output?",
    minutes=4,
    difficulty=1,
    points=1,
    takeaway="Count the places where the window fits: the same formula holds for convolution and pooling.",
    hints=(
        "How far can the window's left edge move? The image is n + 2·padding wide, the window covers `kernel` of it.",
        "The first place needs no move: so one more than the number of whole strides that fit into the way.",
        "`(n + 2 * padding - kernel) // stride + 1`",
    ),
)
def conv_size(answer: Any, new: Inputs) -> None:
    for _ in range(4):
        while True:
            n, k, s, p = new.size(20, 60), new.size(5, 9), new.size(2, 4), new.size(3, 8)
            right, slips = (n + 2 * p - k) // s + 1, _sizes(n, k, s, p)
            if len(slips) == 7 and right not in slips:  # every slip gives a number of its own
                break
        yours = call(answer, n, k, s, p)
        if isinstance(yours, Tensor) and yours.numel() == 1:
            yours = yours.item()
        case = f"n = {n}, kernel = {k}, stride = {s}, padding = {p}"
        if isinstance(yours, float) and not yours.is_integer():
            text = f"A number of places is a whole number ({case})."
            raise Incorrect(text, str(right), f"{yours:g}", "`//` divides and rounds down")
        for wrong, text in slips.items():
            mistake(yours, wrong, f"{text} With {case} it is {right}, yours was {yours}.")
        same(yours, right, f"Your size for {case}")
    k, s, steps = new.size(3, 7), new.size(2, 4), new.size(4, 9)
    n = k + steps * s  # the last window ends where the image ends
    yours = call(answer, n, k, s)
    text = (
        f"You are one short: with n = {n}, kernel = {k}, stride = {s} the last window ends at the edge, and it counts."
    )
    mistake(yours, steps, f"{text} It is {steps + 1}, yours was {steps}.", "add 1 after the division, not before")
    same(yours, steps + 1, f"Your size for n = {n}, kernel = {k}, stride = {s}")
    same(call(answer, 28, 3), 26, "Your size for n = 28 and kernel = 3, the rest by default")


def _sizes(n: int, k: int, s: int, p: int) -> dict[int, str]:
    """Wrong size -> the slip that leads there."""
    return {
        (n + p - k) // s + 1: "You padded one side only: there are zeros on both.",
        (n - k) // s + 1: "Your formula forgets the padding: it makes the image wider, on both sides.",
        (n + 2 * p - k) // s: "You are one short: a window that cannot move at all still has one place.",
        -(-(n + 2 * p - k) // s) + 1: "You rounded up: a window that would stick out is left out.",
        n + 2 * p - k + 1: "Your formula forgets the stride: the window moves by more than one pixel.",
        (n + 2 * p) // s: "Your formula forgets the kernel: the window covers some of the image by itself.",
        (n + 2 * p) // s + 1: "Your formula forgets the kernel: the window itself covers some of the image.",
    }


# ---------------------------------------------------------------------------------------------------------------------


class NoConvolution(TorchDispatchMode):
    """Notices when PyTorch's own convolution is asked."""

    def __init__(self) -> None:
        super().__init__()
        self.asked = False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.asked |= "conv" in func.__name__
        return func(*args, **(kwargs or {}))


@exercise(
    "convolve",
    title="A convolution by hand",
    minutes=10,
    difficulty=3,
    points=3,
    takeaway="A convolution is a matrix product of windows and kernels; that is why processors are so quick at it.",
    hints=(
        "For one place: cut the window out of all images and channels, multiply with each kernel, add up over channel, "
        "row and column.",
        "`torch.einsum('bchw,ochw->bo', window, weight)` does one place for all images and all kernels.",
        "Two loops over the places fill `output[:, :, row, column]`; or `windows = images.unfold(2, h, 1)."
        "unfold(3, w, 1)` has all of them, [B, C, rows, columns, h, w], for one einsum.",
    ),
)
def convolve(answer: Any, new: Inputs) -> None:
    b, c, o = new.sizes(3, 2, 6)
    (h, w), (height, width) = new.sizes(2, 2, 4), new.sizes(2, 6, 9)
    images, weight, bias = new.randn(b, c, height, width), new.randn(o, c, h, w), new.randn(o)
    with NoConvolution() as watch:
        yours = call(answer, images, weight, bias)
    right = F.conv2d(images, weight, bias)
    look = "the sum over channels, rows and columns of window · kernel, plus the bias of the kernel"
    no_sum = torch.einsum("bcijhw,ochw->bocij", images.unfold(2, h, 1).unfold(3, w, 1), weight)
    mistake(yours, F.conv2d(images, weight), "The bias is missing: each output channel adds one number.", look)
    mistake(
        yours,
        F.conv2d(images, weight.flip(2, 3), bias),
        "You flipped the kernel, as mathematicians do. In networks it lies on the window as it is.",
        look,
    )
    mistake(
        yours,
        F.conv2d(images[:, :1], weight[:, :1], bias),
        "You used the first channel only: the window reaches through all of them.",
        look,
    )
    mistake(
        yours,
        F.conv2d(images, weight) / (c * h * w) + bias[:, None, None],
        "You took the mean over the window; a convolution adds up.",
        look,
    )
    mistake(
        yours,
        no_sum.sum(2) + c * bias[:, None, None],
        "The bias was added once for each input channel. It belongs to the finished sum.",
        look,
    )
    if isinstance(yours, Tensor) and yours.shape == (b, o, height, width):
        raise Incorrect(
            "Your output is as large as the image: this convolution has no padding.",
            tuple(right.shape),
            tuple(yours.shape),
            "only places where the whole window fits",
        )
    if isinstance(yours, Tensor) and yours.shape == (b, o, height - h, width - w):
        raise Incorrect(
            "The last row and column of places are missing.",
            tuple(right.shape),
            tuple(yours.shape),
            "H − h + 1 places, not H − h",
        )
    corner = slice(None), slice(None), -1, -1
    if isinstance(yours, Tensor) and yours.shape == right.shape and (yours - right)[corner].abs().min() > 1e-3:
        mistake(
            yours[:, :, :-1, :-1],
            right[:, :, :-1, :-1],
            "All is right but the last row and column of places: nothing was written there.",
            "`range(H - h + 1)`, not `range(H - h)`",
        )
    same(yours, right, "Your convolution", rtol=1e-3, atol=1e-4, look=look)
    if watch.asked:
        raise Incorrect(
            "The result is right, but PyTorch's convolution made it. Here you make your own.",
            "loops, `unfold`, `einsum`, `@`",
            "a call of conv2d",
        )


# ---------------------------------------------------------------------------------------------------------------------


@exercise(
    "small_net",
    seconds=SLOW_START,
    title="A network to a budget",
    minutes=10,
    difficulty=3,
    points=3,
    takeaway="Shrink before you flatten: in a small network most parameters stand in the first linear layer.",
    hints=(
        "Two or three convolutions, each followed by ReLU and something that halves the image, then flatten, then one "
        "linear layer.",
        "Count: a convolution has out · in · k · k + out parameters, a linear layer out · in + out. With 16 channels "
        "of 7 × 7 pixels the last layer has 7,850.",
        "`nn.Conv2d(1, 8, 3, padding=1)`, ReLU, `nn.MaxPool2d(2)`, `nn.Conv2d(8, 16, 3, padding=1)`, ReLU, "
        "`nn.MaxPool2d(2)`, `nn.Flatten()`, `nn.Linear(16 * 7 * 7, 10)`.",
    ),
)
def small_net(answer: Any, new: Inputs) -> None:
    torch.manual_seed(new.size(0, 10**6))
    attempted(answer)
    if isinstance(answer, nn.Module):
        raise Incorrect("This is one network; wanted is the class (or function) that makes networks.", "SmallNet", "it")
    model = call(answer)
    if not isinstance(model, nn.Module):
        raise Incorrect("What you make is not a network.", "an nn.Module", model)
    model.cpu()
    b = new.size(3, 9)
    images = new.randn(b, 1, 28, 28)
    model.eval()
    with NoConvolution() as watch:
        logits = _forward(model, images)
    hidden = _hidden_layers(model)
    if hidden:
        raise Incorrect(
            f"The layers in `self.{hidden}` stand in a plain list or dict: no optimizer will ever see their weights.",
            "layers as attributes, in nn.Sequential or in nn.ModuleList",
            f"a {type(getattr(model, hidden)).__name__}",
        )
    if not isinstance(logits, Tensor):
        raise Incorrect("Your network does not return a tensor.", "logits [B, 10]", logits, "`return` in forward")
    if logits.shape != (b, 10):
        if logits.ndim == 1 or (logits.ndim == 2 and logits.shape[0] != b):
            raise Incorrect(
                "The batch got lost: there should be a row of logits for each image.",
                (b, 10),
                tuple(logits.shape),
                "`flatten(1)` leaves the batch alone; `flatten(0)`, `flatten()` and `view(-1, …)` do not",
            )
        raise Incorrect("The logits have the wrong shape.", (b, 10), tuple(logits.shape), "the last layer")
    if (logits >= 0).all() and torch.allclose(logits.sum(1), torch.ones(b), atol=1e-4):
        raise Incorrect(
            "These are probabilities: there is a softmax at the end. The loss has one inside, and two learn slowly.",
            "logits",
            "rows that sum to 1",
            "the last line of forward",
        )
    if torch.allclose(logits.exp().sum(1), torch.ones(b), atol=1e-4):
        raise Incorrect(
            "These are log-probabilities: there is a log_softmax at the end. `cross_entropy` takes plain logits.",
            "logits",
            "rows whose exponentials sum to 1",
        )
    if (logits == 0).any() and logits.any() and (logits >= 0).all():
        raise Incorrect(
            "No logit is below zero: there is a ReLU behind the last layer. What it cuts off learns nothing.",
            "logits of both signs",
            look="the last line of forward",
        )
    if not torch.allclose(logits, _forward(model, images), atol=1e-5):
        raise Incorrect(
            "In eval mode the same images get other logits the second time: something is drawn at random.",
            "equal logits",
            "other ones",
            "`F.dropout` asks nobody about the mode: `nn.Dropout`, or `training=self.training`; and layers are made "
            "in `__init__`, not in forward",
        )
    if not torch.allclose(logits[:2], _forward(model, images[:2]), atol=1e-4):
        raise Incorrect(
            "An image gets other logits in other company: images of a batch are mixed.",
            "the same logits in every batch",
            "other ones",
            "every reshape before the last layer",
        )
    if not watch.asked:
        raise Incorrect("There is no convolution in your network.", "at least one nn.Conv2d, used in forward", "none")
    others = images.roll(1, 0)
    zero, sums = _forward(model, torch.zeros_like(images)), _forward(model, images + others)
    if not torch.equal(logits, zero) and torch.allclose(logits + _forward(model, others), sums + zero, atol=1e-4):
        raise Incorrect(
            "Your network has no ReLU: layer after layer, it can do no more than a single linear one.",
            "something that bends between the layers",
            "logits of a sum of images that are the sum of their logits",
            "`nn.ReLU()` after each convolution",
        )
    count = sum(parameter.numel() for parameter in model.parameters())
    if count > BUDGET:
        largest, size = max(((n, p.numel()) for n, p in model.named_parameters()), key=lambda pair: pair[1])
        raise Incorrect(
            "Your network is over the budget.",
            f"at most {BUDGET:,} parameters",
            f"{count:,}, of which {size:,} in `{largest}`",
            "halve the image once more before you flatten, or take fewer channels",
        )
    model.train()
    loss = F.cross_entropy(_forward(model, images), new.ints(0, 10, (b,)))
    if not loss.requires_grad:
        raise Incorrect(
            "Nothing in your network can learn: no gradient flows through it.",
            look="`no_grad`, `detach`, `requires_grad_(False)`",
        )
    loss.backward()
    asleep = [name for name, parameter in model.named_parameters() if parameter.grad is None]
    if asleep:
        raise Incorrect(
            f"`{asleep[0]}` gets no gradient: forward does not use that layer.", look="every layer of __init__"
        )


def _forward(model: nn.Module, images: Tensor) -> Any:
    return call(lambda x: model(x), images)


def _hidden_layers(model: nn.Module) -> str | None:
    for name, value in vars(model).items():
        parts = value.values() if isinstance(value, dict) else value if isinstance(value, (list, tuple)) else ()
        if not name.startswith("_") and any(isinstance(part, nn.Module) for part in parts):
            return name
    return None


# ---------------------------------------------------------------------------------------------------------------------


class Transform:
    """Adds a number that is another one in every call, and counts the calls."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, image: Tensor) -> Tensor:
        if not isinstance(image, Tensor) or image.ndim != 3:
            raise Incorrect("The transform got something that is not one image.", "uint8 [C, H, W]", image)
        self.calls += 1
        return image.float() / 255 + self.calls


@exercise(
    "image_dataset",
    title="A Dataset of your own",
    minutes=8,
    difficulty=2,
    points=2,
    takeaway="Two methods make a data set, and the transform runs when a sample is asked for: random ones stay random.",
    hints=(
        "Keep the three arguments in `__init__`; nothing else happens there.",
        "`__getitem__` takes one image, applies the transform if there is one, and returns it with the label.",
        "`image = self.images[index]`, `if self.transform: image = self.transform(image)`, "
        "`return image, int(self.labels[index])`.",
    ),
)
def image_dataset(answer: Any, new: Inputs) -> None:
    n, (height, width) = new.size(11, 16), new.sizes(2, 4, 8)
    images, labels = new.images(n, 1, height, width), new.ints(0, 10, (n,))
    kept, transform = images.clone(), Transform()
    ds = _with_our_words(answer, images, labels, transform)
    if transform.calls:
        raise Incorrect(
            "The transform already ran when the data set was made. A random one would then be random only once.",
            "no call before a sample is asked for",
            f"{transform.calls} calls",
            "`__init__`: keep the transform, call it in `__getitem__`",
        )
    if not hasattr(ds, "__len__") or not hasattr(ds, "__getitem__"):
        raise Incorrect("A data set needs the methods `__len__` and `__getitem__`.", yours=ds)
    same(call(lambda: len(ds)), n, "The length of your data set", look="`__len__`: the number of images")
    for index in (0, n - 1, new.size(1, n - 2), 0):  # the first one twice: each time the transform has to run
        before = transform.calls
        sample = _with_our_words(lambda index=index: ds[index])
        if not isinstance(sample, (tuple, list)) or len(sample) != 2:
            raise Incorrect("A sample is not a pair.", "(image, label)", sample, "`return` in `__getitem__`")
        if not torch.equal(images, kept):
            text = "The stored images have changed: the next epoch will see others."
            raise Incorrect(text, look="what works in place")
        image, label = sample
        plain = kept[index]
        if transform.calls == before:
            raise Incorrect(
                "A sample that was asked for again came without a call of the transform: each epoch would be the same."
                if before
                else "The transform was never called.",
                "the transformed image",
                "the stored one" if isinstance(image, Tensor) and torch.equal(image, plain) else image,
                "`self.transform(image)` in `__getitem__`",
            )
        if transform.calls > before + 1:
            raise Incorrect(
                "The transform ran more than once for one sample.", "one call", f"{transform.calls - before} calls"
            )
        mistake(image, plain, "You call the transform, but return the image from before it.", "what it returns")
        if isinstance(label, Tensor) and label.ndim == 3:
            raise Incorrect("Image and label are the other way round.", "(image, label)", sample, "`return`")
        if (isinstance(label, Tensor) and label.is_floating_point()) or isinstance(label, float):
            raise Incorrect(
                "The label is a float. Classes are counted, and `cross_entropy` wants whole numbers.",
                "an int, or an int64 tensor",
                label,
            )
        if isinstance(label, Tensor) and label.numel() != 1:
            raise Incorrect("A sample has one label.", "one number", label, "`self.labels[index]`")
        same(int(label), int(labels[index]), f"The label of sample {index}")
        same(image, plain.float() / 255 + transform.calls, f"The image of sample {index}")
    ds = call(answer, images, labels)
    image, _ = call(lambda: ds[1])
    same(image, kept[1], "Without a transform, the image of sample 1", look="`transform=None`: as it is stored")
    batch = call(lambda: next(iter(DataLoader(ds, batch_size=4))))
    same(batch[1], labels[:4], "The labels of a batch made by DataLoader")


# ---------------------------------------------------------------------------------------------------------------------


def _fresh(new_seed: int) -> tuple[nn.Module, torch.optim.Optimizer]:
    generator = torch.Generator().manual_seed(new_seed)
    model = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Dropout(0.5), nn.Linear(16, 3))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.4)
    return model, torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)


def _learn(model: nn.Module, optimizer: torch.optim.Optimizer, batches: list[tuple[Tensor, Tensor]]) -> None:
    model.train()
    for x, y in batches:
        loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def _row(model: nn.Module) -> Tensor:
    return torch.cat([parameter.detach().flatten() for parameter in model.parameters()])


@exercise(
    "go_on_exactly",
    seconds=SLOW_START,
    title="Stop, and go on exactly",
    minutes=12,
    difficulty=4,
    points=3,
    takeaway="Weights, momentum, random numbers, position: with all four, a broken training only had a pause.",
    hints=(
        "What changes from step to step? The weights, what the optimizer remembers, the state of the random generator "
        "that dropout draws from, and the number of the epoch.",
        "`model.state_dict()`, `optimizer.state_dict()`, `torch.get_rng_state()`; back with `load_state_dict` (twice) "
        "and `torch.set_rng_state`.",
        '`return {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "random": torch.get_rng_state(), '
        '"epoch": epoch}`, and in `restore` the same four the other way round, ending in `return state["epoch"]`.',
    ),
)
def go_on_exactly(answer: Any, new: Inputs) -> None:
    attempted(answer)
    if not isinstance(answer, (tuple, list)) or len(answer) != 2 or not all(callable(part) for part in answer):
        raise Incorrect("Two functions are asked for.", "(checkpoint, restore)", answer, "the call of `check`")
    checkpoint, restore = answer
    for part in answer:
        attempted(part)
    batches = [(new.randn(5, 6), new.ints(0, 3, (5,))) for _ in range(6)]
    seed, epoch = new.size(0, 999), new.size(3, 60)
    torch.manual_seed(seed)
    model, optimizer = _fresh(seed)
    _learn(model, optimizer, batches[:3])
    before, random = _row(model), torch.get_rng_state()
    state = call(checkpoint, model, optimizer, epoch, may_change=True)
    unchanged = torch.equal(before, _row(model)) and torch.equal(random, torch.get_rng_state())
    if not unchanged or not model.training:
        raise Incorrect("Saving changed the run: weights, random numbers or the mode are others afterwards.")
    try:
        file = io.BytesIO()
        torch.save(state, file)
        state = torch.load(io.BytesIO(file.getvalue()), map_location="cpu")
    except Exception as error:
        raise Incorrect(
            "What you return cannot go through a file: `torch.load` takes tensors, numbers, strings and containers.",
            "state_dicts and plain values",
            f"{type(error).__name__}: a whole model or optimizer, or another object, is in it",
            "`model.state_dict()` instead of `model`",
        ) from None
    call(checkpoint, *_fresh(seed + 2), epoch + 1, may_change=True)  # `state` has to be enough, whatever is saved later
    torch.set_rng_state(random)
    _learn(model, optimizer, batches[3:])  # the run that nobody interrupted

    def resumed(put_back: Any) -> tuple[nn.Module, Any]:
        """Another process: fresh weights, other random numbers; then restore, and the second half."""
        torch.manual_seed(seed + 1)
        other, its_optimizer = _fresh(seed + 1)
        result = put_back(other, its_optimizer)
        _learn(other, its_optimizer, batches[3:])
        return other, result

    def yours(other: nn.Module, its_optimizer: torch.optim.Optimizer) -> Any:
        nonlocal restored, seeded
        result = call(restore, other, its_optimizer, copy.deepcopy(state), may_change=True, may_return_none=True)
        restored = _row(other)
        seeded = torch.equal(torch.get_rng_state(), torch.Generator().manual_seed(torch.initial_seed()).get_state())
        return result

    restored, seeded = before, False
    other, position = resumed(yours)
    if not torch.equal(restored, before):
        raise Incorrect(
            "After `restore` the model does not have the saved weights.",
            "the weights from the checkpoint",
            "others",
            "`model.load_state_dict(…)`. Is it the model that came in? Is all that you need in `state`?",
        )
    right = _row(model)
    if not torch.equal(_row(other), right):
        weights = _weights_at(before, seed)

        def half(momentum: bool, dice: bool) -> Tensor:
            """The weights after restoring only some of it."""

            def put_back(other: nn.Module, its_optimizer: torch.optim.Optimizer) -> None:
                other.load_state_dict(weights)
                if momentum:
                    its_optimizer.load_state_dict(saved_optimizer)
                if dice:
                    torch.set_rng_state(random)

            return _row(resumed(put_back)[0])

        torch.manual_seed(seed)
        again, its_optimizer = _fresh(seed)
        _learn(again, its_optimizer, batches[:3])
        saved_optimizer = copy.deepcopy(its_optimizer.state_dict())
        lost = "the second half does not continue the first"
        mistake(
            _row(other),
            half(False, True),
            f"The optimizer starts anew: its momentum is lost, and {lost}.",
            "`optimizer.state_dict()` in checkpoint, `optimizer.load_state_dict` in restore",
        )
        mistake(
            _row(other),
            half(True, False),
            f"The random numbers are others: dropout drops other numbers, and {lost}.",
            "`torch.get_rng_state()` in checkpoint, `torch.set_rng_state` in restore",
        )
        mistake(
            _row(other),
            half(False, False),
            f"Only the weights came back, neither momentum nor random numbers: {lost}.",
            "what else changes from step to step?",
        )
        if seeded:
            raise Incorrect(
                f"A seed was set: the random numbers begin anew instead of going on, and {lost}.",
                look="`torch.get_rng_state()` in checkpoint, `torch.set_rng_state` in restore",
            )
        same(
            _row(other),
            right,
            "The row of all weights after going on",
            rtol=0,
            atol=0,
            look="is all of the state put back?",
        )
    if position is None:
        raise Incorrect("`restore` does not say where to go on.", f"the epoch, {epoch}", "None", "its `return`")
    same(position, epoch, "The epoch that `restore` returns")


def _weights_at(row: Tensor, seed: int) -> dict[str, Tensor]:
    """The state_dict of the small network with these weights."""
    model, _ = _fresh(seed)
    torch.nn.utils.vector_to_parameters(row, model.parameters())
    return model.state_dict()


# ---------------------------------------------------------------------------------------------------------------------


class Batches:
    """Batches that come once: who asks again gets an error that says so."""

    def __init__(self, batches: list[tuple[Tensor, Tensor]]) -> None:
        self.batches, self.given = batches, 0

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        if self.given:
            raise Incorrect(
                "You went through the batches a second time: that is over the budget.",
                f"each of the {len(self.batches)} batches once",
                "a second pass",
                "one loop, no epochs",
            )
        for batch in self.batches:
            self.given += 1
            yield batch

    def __len__(self) -> int:
        return len(self.batches)


@functools.cache
def garments() -> tuple[Tensor, Tensor]:
    """Fashion-MNIST's training images, normalized: float32 [N, 1, 28, 28], and their labels [N]."""
    ds = data.load("fashion_mnist", "train")
    ds = ds.subset(slice(8000))
    (mean,), (std,) = data.MEAN_STD["fashion_mnist"]
    return (ds.images.float() / 255 - mean) / std, ds.labels


@exercise(
    "train_garments",
    seconds=120.0,
    title="Learn from few batches",
    minutes=12,
    difficulty=4,
    points=4,
    takeaway="Under a budget, the learning rate and its schedule count for more than the network.",
    hints=(
        "A network, an optimizer, and the loop of chapter 02, once over the batches. Then tune the learning rate.",
        "`len(batches)` is known beforehand, so the learning rate can rise and fall within it: OneCycleLR.",
        "`optimizer = torch.optim.Adam(model.parameters(), lr=0.01)`, `OneCycleLR(optimizer, 0.01, "
        "total_steps=len(batches))`, and `scheduler.step()` after each `optimizer.step()`.",
    ),
)
def train_garments(answer: Any, new: Inputs) -> None:
    attempted(answer)
    images, labels = garments()
    order = new.permutation(len(labels))
    rows, held_out = order[: 64 * STEPS].view(STEPS, 64), order[64 * STEPS : 64 * STEPS + 1000]
    batches = Batches([(images[row], labels[row]) for row in rows])
    torch.manual_seed(new.size(0, 10**6))
    model = _with_our_words(answer, batches)
    if not isinstance(model, nn.Module):
        raise Incorrect("Your function does not return a network.", "the trained nn.Module", model, "`return model`")
    if not batches.given:
        raise Incorrect("Your function never looked at the batches.", f"{STEPS} batches", "none of them")
    model.cpu()
    accuracy = _accuracy(model.eval(), images[held_out], labels[held_out])
    if accuracy >= ENOUGH:
        return
    numbers = (f"at least {ENOUGH:.0%} of garments it has not seen", f"{accuracy:.1%}")
    if batches.given < STEPS // 2:
        raise Incorrect(
            f"Your loop ended after {batches.given} of {STEPS} batches.",
            *numbers,
            "a `return` or `break` inside the loop?",
        )
    with torch.no_grad():
        logits = model(images[held_out[:50]])
    if (logits >= 0).all() and torch.allclose(logits.sum(1), torch.ones(50), atol=1e-3):
        raise Incorrect(
            "Your network ends in a softmax, and `cross_entropy` has one inside: it learns far too slowly.", *numbers
        )
    with torch.no_grad():
        model.train()
        on_its_own = (model(images[held_out]).argmax(1) == labels[held_out]).float().mean().item()
    if on_its_own > accuracy + 0.15:
        raise Incorrect(
            f"In train mode your network would reach {on_its_own:.1%}: batch norm has learned no statistics.",
            *numbers,
            "`model.train()` before the loop",
        )
    if not logits.isfinite().all():
        raise Incorrect("The logits are not finite: the learning rate is far too large.", *numbers)
    text = "That is near guessing: does the loss fall at all?" if accuracy < 0.2 else "It learns, but not enough."
    look = "`backward`, `step`, the learning rate" if accuracy < 0.2 else "the learning rate, by factors of three"
    raise Incorrect(text, *numbers, look)


def _accuracy(model: nn.Module, images: Tensor, labels: Tensor) -> float:
    with torch.no_grad():
        logits = call(lambda: model(images))
    if not isinstance(logits, Tensor) or logits.shape != (len(images), 10):
        raise Incorrect("The network does not give ten logits for each image.", (len(images), 10), logits)
    return (logits.argmax(1) == labels).float().mean().item()


# ---------------------------------------------------------------------------------------------------------------------


@exercise(
    "receptive_field",
    title="What one number sees",
    minutes=8,
    difficulty=3,
    points=2,
    takeaway="Every stride makes all later kernels reach further: that is why networks shrink images early.",
    hints=(
        "Begin with a field of 1 pixel. A layer with kernel k adds k − 1 steps; how many pixels is one step there?",
        "A step is as many pixels as the product of the strides of all layers *before* this one.",
        "`field += (kernel - 1) * step`, then `step *= stride`, for each layer in turn.",
    ),
)
def receptive_field(answer: Any, new: Inputs) -> None:
    for _ in range(4):
        while True:
            count = new.size(3, 4)
            layers = [(new.size(3, 7), 2), *((new.size(2, 7), new.size(2, 3)) for _ in range(count - 1))]
            right, slips = _field(layers), _fields(layers)
            if len(slips) == 9 and right not in slips:  # every slip gives a number of its own
                break
        yours = call(answer, layers)
        for wrong, text in slips.items():
            mistake(yours, wrong, f"{text} With {layers} it is {right}, yours was {yours}.")
        same(yours, right, f"Your field of {layers}")
    same(call(answer, []), 1, "The field without any layer")


def _field(layers: list[tuple[int, int]], own: bool = False) -> int:
    """Pixels that one number sees; `own`: with each layer's own stride counted too early."""
    field = step = 1
    for kernel, stride in layers:
        field += (kernel - 1) * step * (stride if own else 1)
        step *= stride
    return field


def _fields(layers: list[tuple[int, int]]) -> dict[int, str]:
    """Wrong field -> the slip that leads there."""
    return {
        1 + sum(k - 1 for k, _ in layers): "The strides are missing: after a stride of 2, one step is two pixels.",
        sum(k for k, _ in layers): "You added the kernels. A kernel adds k − 1 steps: one pixel is seen already.",
        _field(layers, own=True): "A layer's own stride comes too early: it only spreads the layers after it.",
        _field(layers) - 1: "The pixel in the middle is missing: begin with a field of 1.",
        math.prod(s for _, s in layers): "This is the product of the strides: how far one step moves, in pixels.",
        math.prod(k for k, _ in layers): "You multiplied the kernels. Each layer adds to the field.",
        1 + sum((k - 1) * s for k, s in layers): "You used each layer's own stride. What counts is the product of "
        "the strides before it.",
        _field(layers[::-1]): "This is right for the layers in the opposite order: which one comes first?",
        1 + sum((k - 1) * s for (k, _), (_, s) in zip(layers, [(1, 1), *layers[:-1]], strict=True)): "Only the last "
        "stride before a layer counts in yours: the strides of all layers before it multiply.",
    }
