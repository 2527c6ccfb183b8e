"""The exercises of chapter 02: a gradient by hand, and the pieces of a training loop."""

import copy
import itertools
import random
import warnings
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NoReturn

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from torchcourse.checks.engine import AnswerRaised, Incorrect, Inputs, call, chapter, mistake, same

# The first optimizer of a process imports much of PyTorch, which takes seconds on a slow machine.
SLOW_START = 30.0

exercise = chapter("02_training_loop")
Batch = tuple[Tensor, Tensor]


# ---------------------------------------------------------------------------------------------------------------------
# What the judges below share


class Watch(nn.Module):
    """A layer that changes nothing and writes down how it was called: (batch size, train mode?, gradients on?)."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[tuple[int, bool, bool]] = []

    def forward(self, x: Tensor) -> Tensor:
        self.seen.append((len(x), self.training, torch.is_grad_enabled()))
        return x


class WatchedSGD(torch.optim.SGD):
    """SGD that writes down, in their order, its own calls and the arrival of gradients.

    events: "zero_grad", "backward" (a gradient arrived), "summed" (it was added to an old one), "step".
    """

    def __init__(self, model: nn.Module, lr: float) -> None:
        super().__init__(model.parameters(), lr=lr)
        self.events: list[str] = []
        parameter = next(model.parameters())
        arrived: list[Tensor] = []
        parameter.register_hook(lambda gradient: arrived.append(gradient.clone()))

        def compare(p: Tensor) -> None:
            self.events.append("backward" if torch.equal(p.grad, arrived.pop()) else "summed")

        parameter.register_post_accumulate_grad_hook(compare)

    def zero_grad(self, set_to_none: bool = True) -> None:
        self.events.append("zero_grad")
        super().zero_grad(set_to_none)

    def step(self, closure: Any = None) -> Any:
        self.events.append("step")
        return super().step(closure)


def network(new: Inputs, pixels: int, classes: int, norm: bool = False) -> nn.Sequential:
    """A small network with a Watch as its second layer, its weights from the check's own generator."""
    layers = [nn.Flatten(), Watch(), nn.Linear(pixels, 12), *([nn.BatchNorm1d(12)] if norm else []), nn.ReLU()]
    model = nn.Sequential(*layers, nn.Linear(12, classes))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(new.randn(*parameter.shape) * 0.4)
        if norm:  # statistics that differ from those of any batch
            model[3].running_mean.copy_(new.randn(12))
            model[3].running_var.copy_(new.rand(12) + 0.5)
    return model


def batch(new: Inputs, size: int, height: int, width: int, classes: int) -> Batch:
    """images float32 [size, 1, height, width], labels int64 [size]"""
    return new.randn(size, 1, height, width), new.ints(0, classes, (size,))


def weights(model: nn.Module) -> Tensor:
    """All parameters, one after the other, in one tensor."""
    return torch.cat([p.detach().cpu().double().flatten() for p in model.parameters()])


def number(value: Any, what: str) -> float:
    """The value as a Python number. Raises Incorrect for anything else, with a word about graphs for tensors."""
    if isinstance(value, Tensor):
        if value.numel() != 1:
            raise Incorrect(f"{what} is a tensor of shape {tuple(value.shape)}.", "one Python number", value)
        if value.requires_grad:
            raise Incorrect(
                f"{what} is a tensor that still holds its graph: whoever keeps it keeps every step that led to it.",
                "a Python number",
                value,
                "`.item()` takes the number out",
            )
        raise Incorrect(f"{what} is a tensor.", "a Python number", value, "`.item()` takes the number out")
    plain = plain_number(value)
    if plain is None:
        raise Incorrect(f"{what} is not a number.", "a Python number", value)
    return plain


def plain_number(value: Any) -> float | None:
    """A number or a tensor of one element as a float; None for everything else."""
    if isinstance(value, bool) or not isinstance(value, (int, float, np.number, Tensor)):
        return None
    try:
        return float(value.detach() if isinstance(value, Tensor) else value)
    except (TypeError, ValueError, OverflowError, RuntimeError):  # many elements, complex, far too large
        return None


def intact(model: nn.Module, reference: nn.Module) -> None:
    """Raise Incorrect unless the model still has all its layers and weights, whatever their values."""
    now, before = ({name: value.shape for name, value in m.state_dict().items()} for m in (model, reference))
    if now != before or len(list(model.modules())) != len(list(reference.modules())):
        raise Incorrect("Your function took the model apart: layers or weights are missing or have other shapes.")


def gradients_still_on() -> None:
    """Raise Incorrect if the answer switched gradients off for everybody and left it so."""
    if not torch.is_grad_enabled():
        raise Incorrect(
            "Your function leaves gradients switched off: no `backward()` after it would work.",
            "gradients switched on after the call",
            "switched off",
            "`with torch.no_grad():` switches them back on by itself, `torch.set_grad_enabled(False)` does not",
        )


def untouched(batches: Sequence[Batch], before: Sequence[Batch]) -> None:
    """Raise Incorrect unless the batches are what they were."""
    if len(batches) != len(before) or not all(
        torch.equal(a, b) for now, then in zip(batches, before, strict=True) for a, b in zip(now, then, strict=True)
    ):
        raise Incorrect(
            "Your function changed the batches that it got: whoever uses them next has lost them.",
            "the batches as they were",
            "other ones after the call",
            "what works in place: `pop`, `-=`, methods that end in an underscore",
        )


def close(a: float, b: float) -> bool:
    return abs(a - b) <= 1e-5 + 1e-4 * abs(b)


def slip(yours: float, right: float, wrong: float, problem: str, look: str | None = None) -> None:
    """`mistake` for numbers, which may by chance be right as well: then nothing is said."""
    if not close(wrong, right):
        mistake(yours, wrong, problem, look)


# ---------------------------------------------------------------------------------------------------------------------


@exercise(
    "gradient_by_hand",
    title="A gradient by hand",
    minutes=4,
    difficulty=1,
    points=1,
    takeaway="This is all that `backward()` does: outer derivative times inner derivative, for every operation.",
    hints=(
        "Begin with one pair: the derivative of (w·x − y)² with respect to w has an outer and an inner part.",
        "Outer: 2 · (w·x − y). Inner: the derivative of w·x with respect to w. Multiply, then average over the pairs.",
        "`(2 * (w * x - y) * ...).mean()` with the inner derivative in place of the dots.",
    ),
)
def gradient_by_hand(answer: Any, new: Inputs) -> None:
    for _ in range(2):
        n = new.size(3, 9)
        w, x, y = new.randn(1)[0] + 2, new.randn(n) + 1, new.randn(n) - 1
        yours = call(answer, w, x, y)
        if isinstance(yours, (float, np.floating)):
            yours = torch.tensor(float(yours))
        if isinstance(yours, Tensor) and yours.shape == (1,):
            yours = yours[0]
        if isinstance(yours, Tensor) and yours.is_complex():
            raise Incorrect("Your gradient is not a real number.", "a float", yours)
        error = w * x - y
        expected = (2 * error * x).mean()
        look = "outer derivative times inner derivative, then the mean"
        if isinstance(yours, Tensor) and yours.shape == (n,):
            raise Incorrect(
                "You return one number for each pair. The loss is a mean, so its derivative is a mean as well.",
                "one number",
                f"{n} numbers",
                "`.mean()` at the end",
            )
        mistake(yours, expected / 2, "The factor 2 is missing: the derivative of a square u² is 2·u.", look)
        mistake(
            yours, (2 * error).mean(), "The inner derivative is missing: w·x changes by x when w changes by 1.", look
        )
        mistake(yours, (2 * error * w).mean(), "You multiplied by w. That is the derivative with respect to x.", look)
        mistake(yours, (2 * error * x).sum(), "You took the sum over the pairs; the loss is their mean.", look)
        mistake(
            yours, -expected, "The sign is the wrong way round: the error is prediction minus target, w·x − y.", look
        )
        text = (
            "You multiplied two means. The mean of a product is something else: multiply for each pair, then average."
        )
        mistake(yours, 2 * error.mean() * x.mean(), text, look)
        mistake(yours, error.square().mean(), "This is the loss itself. Wanted is how it changes with w.", look)
        same(yours, expected, "Your gradient", dtype=False, look=look)


@exercise(
    "accuracy",
    title="Accuracy",
    minutes=3,
    difficulty=1,
    points=1,
    takeaway="The largest logit is also the largest probability: for the accuracy no softmax is needed.",
    hints=(
        "Which class does the model choose for each image? Compare with the labels, then take the mean.",
        "`logits.argmax(dim=1)` gives one class for each row; `==` compares; a mean needs floats.",
        "`(logits.argmax(dim=1) == labels).float().mean()`, and `.item()` for a Python number.",
    ),
)
def accuracy(answer: Any, new: Inputs) -> None:
    # First as many images as classes: there, mixing up the two axes gives a wrong number instead of an error.
    square = new.size(7, 12)
    # Then a prime number of images: no share of them is a round number, so that a rounded answer shows.
    for n, classes in ((square, square), (new.pick((17, 19, 23, 29, 31)), new.size(32, 40))):
        logits, labels, right = _some_right(new, n, classes)
        yours = call(answer, logits, labels)
        if isinstance(yours, Tensor) and yours.shape == (n,):
            raise Incorrect("You return one value for each image: take the mean of them.", "one number", yours)
        yours = number(yours, "Your result")
        share = right / n
        slip(yours, share, 1 - share, "This is the share of wrong answers; the accuracy is that of right ones.")
        slip(yours, share, right, "This is the number of right answers: divide it by the number of images.")
        slip(yours, share, 100 * share, "This is the accuracy in percent; wanted is a share from 0 to 1.")
        all_pairs = (logits.argmax(1, keepdim=True) == labels).double().mean().item()
        text = "You compared every prediction with every label: the shapes [N, 1] and [N] broadcast to [N, N]."
        slip(yours, share, all_pairs, text, "argmax without `keepdim`")
        if classes == n:
            by_column = (logits.argmax(0) == labels).double().mean().item()
            text = "You took the argmax over the images, for each class. Wanted is the best class for each image."
            slip(yours, share, by_column, text, "the `dim` of argmax: the classes lie along axis 1")
        else:
            wrong = "You divided by the number of classes: divide by the number of images, `len(labels)`."
            slip(yours, share, right / classes, wrong)
        slip(yours, share, right / logits.numel(), "You divided by the number of logits: divide by `len(labels)`.")
        same(yours, share, "Your accuracy", look="argmax over axis 1, compared with the labels")


def _some_right(new: Inputs, n: int, classes: int) -> tuple[Tensor, Tensor, int]:
    """Logits [n, classes], labels [n], and how many are right: neither few nor all, and not by the other axis too."""
    while True:
        logits, labels, right = new.randn(n, classes), new.ints(0, classes, (n,)), new.size(2, n - 2)
        logits[torch.arange(n), labels] = logits.max() + 1
        wrong = logits[right:]  # a view: the label's logit becomes the mean of the others, neither largest nor smallest
        own = labels[right:, None]
        wrong.scatter_(1, own, (wrong.sum(1, keepdim=True) - wrong.gather(1, own)) / (classes - 1))
        order = new.permutation(n)
        logits, labels = logits[order] / 5 - 1, labels[order]  # no probability reaches one half, nor most logits zero
        by_column = (logits.argmax(0) == labels).sum() if n == classes else -1
        of_a_pair = (logits.argmax(1, keepdim=True) == labels).sum() / n
        if by_column not in (0, right, n - right, of_a_pair):  # each mistake gives a number of its own
            return logits, labels, right


@exercise(
    "split_indices",
    title="Training and validation",
    minutes=6,
    difficulty=2,
    points=2,
    takeaway="With a generator of its own the split is the same in every run, and nobody else's random numbers move.",
    hints=(
        "Shuffle the numbers 0 to n − 1, then cut the row in two.",
        "`torch.randperm(n, generator=...)` shuffles; `torch.Generator().manual_seed(seed)` is your own generator.",
        "`order = torch.randperm(n, generator=generator)`, `k = int(n * fraction)`, return `order[k:], order[:k]`.",
    ),
)
def split_indices(answer: Any, new: Inputs) -> None:
    n, fraction, seed = 20 * new.size(5, 30), new.pick((0.1, 0.15, 0.2, 0.25)), new.size(1, 1000)
    state, python, numpy = torch.get_rng_state(), random.getstate(), np.random.get_state()[1].copy()
    training, validation = _two_index_rows(call(answer, n, fraction, seed))
    moved = "torch" if not torch.equal(state, torch.get_rng_state()) else None
    moved = moved or ("Python" if python != random.getstate() else None)
    moved = moved or ("NumPy" if not np.array_equal(numpy, np.random.get_state()[1]) else None)
    wanted = round(n * fraction)
    if abs(len(validation) - wanted) > 1 and abs(len(training) - wanted) <= 1:
        raise Incorrect(
            "The two are the other way round: training comes first, and the fraction is that of the validation set.",
            f"{n - wanted} and {wanted} indices",
            f"{len(training)} and {len(validation)} indices",
        )
    both = sorted(set(training) & set(validation))
    if both:
        raise Incorrect(
            "Some indices stand in both parts: the validation set would then test on images that were learned.",
            "no index in both",
            f"{len(both)} in both, for example {both[0]}",
            "draw one permutation and cut it, instead of drawing twice",
        )
    for row, name in ((training, "training"), (validation, "validation")):
        if len(set(row)) < len(row):
            raise Incorrect(
                f"Some indices occur more than once in the {name} part.",
                f"{len(row)} different indices",
                f"{len(set(row))} different ones",
                "`randperm` draws each number once, `randint` does not",
            )
    if set(training) | set(validation) != set(range(n)):
        missing = sorted(set(range(n)) - set(training) - set(validation))
        raise Incorrect(
            "The two parts together are not the numbers 0 to n − 1.",
            f"all {n} indices",
            f"{len(missing)} are missing, for example {missing[0]}" if missing else "there are others among them",
        )
    if abs(len(validation) - wanted) > 1:
        raise Incorrect("The validation part has the wrong size.", f"{wanted} of {n}", f"{len(validation)} of {n}")
    row = sorted(validation)
    steps = [(b - a) % n for a, b in itertools.pairwise([*row, row[0]])]
    if steps.count(1) >= len(row) - 1:  # a block, perhaps from the middle or around the end
        raise Incorrect(
            "Nothing is shuffled: the validation part is a block. In a file sorted by class that would be one class.",
            "a random choice",
            f"the indices {row[steps.index(max(steps)) - len(row) + 1]} to {row[steps.index(max(steps))]}",
            "`torch.randperm`",
        )
    if len(set(steps[:-1])) == 1:
        raise Incorrect(
            f"Nothing is shuffled: the validation part is every {steps[0]}th index.",
            "a random choice",
            f"the indices {row[0]}, {row[1]}, {row[2]}, …",
            "`torch.randperm`",
        )
    if moved:
        raise Incorrect(
            f"Your function moved {moved}'s global random generator: whoever draws after you gets other numbers.",
            "the global random state as it was",
            "another state after the call",
            "a generator of your own: `torch.Generator().manual_seed(seed)`, given to `randperm`",
        )
    if _two_index_rows(call(answer, n, fraction, seed)) != (training, validation):
        raise Incorrect("A second call with the same seed gives another split.", look="is the seed used?")
    if _two_index_rows(call(answer, n, fraction, seed + 1)) == (training, validation):
        raise Incorrect("Another seed gives the same split.", look="a number in the place of `seed`?")
    _size_of_the_parts(answer, new, seed)


def _size_of_the_parts(answer: Any, new: Inputs, seed: int) -> None:
    """The lengths where n * fraction is no whole number, and where the validation part is empty."""
    share = new.pick((0.13, 0.17, 0.23, 0.3, 0.35))
    uneven = next(n for n in range(new.size(101, 300), 500) if 0.6 < n * share % 1 < 0.95)
    for n, fraction in ((uneven, share), (new.size(5, 9), 0.1)):
        with warnings.catch_warnings(action="ignore"):  # random_split warns of an empty part
            training, validation = _two_index_rows(call(answer, n, fraction, seed))
        k = int(n * fraction)
        if (len(training), len(validation)) != (n - k, k):
            raise Incorrect(
                f"The parts have the wrong size for n = {n} and fraction = {fraction}.",
                f"{n - k} and {k} indices",
                f"{len(training)} and {len(validation)} indices",
                "k is `int(n * fraction)`, always rounded down"
                if k
                else "k is 0 here, and `[-0:]` is the same as `[0:]`",
            )


def _two_index_rows(result: Any) -> tuple[list[int], list[int]]:
    """Two rows of integers as lists; tensors, arrays and lists are all welcome."""
    if not isinstance(result, (tuple, list)) or len(result) != 2:
        raise Incorrect(
            "Your function does not return two things.", "(training indices, validation indices)", result, "`return`"
        )
    rows = []
    for row in result:
        try:
            tensor = torch.as_tensor(np.asarray(row) if isinstance(row, (range, np.ndarray)) else row)
        except Exception:
            tensor = torch.zeros(())
        if tensor.shape == (0,):  # an empty list makes a float tensor
            tensor = tensor.long()
        if tensor.ndim != 1 or tensor.is_floating_point() or tensor.is_complex() or tensor.dtype == torch.bool:
            raise Incorrect("Indices are expected in a row.", "an int64 tensor with one axis", row)
        rows.append(tensor.tolist())
    return rows[0], rows[1]


@exercise(
    "train_step",
    seconds=SLOW_START,
    title="One step of training",
    minutes=7,
    difficulty=3,
    points=2,
    takeaway="Clear, backward, step: the order counts, and no error tells you when it is wrong.",
    hints=(
        "In this order: mode, prediction, loss, gradients, step. Old gradients must be gone before new ones come.",
        "`model.train()`, `F.cross_entropy(model(images), labels)`, `optimizer.zero_grad()`, `loss.backward()`, "
        "`optimizer.step()`.",
        "Return the number, not the tensor: `return loss.item()`.",
    ),
)
def train_step(answer: Any, new: Inputs) -> None:
    (height, width), classes, lr = new.sizes(2, 3, 6), new.size(3, 7), 0.3
    model = network(new, height * width, classes)
    batches = [batch(new, new.size(5, 11), height, width, classes) for _ in range(3)]
    start, right = copy.deepcopy(model), copy.deepcopy(model)
    optimizer, losses = torch.optim.SGD(right.parameters(), lr=lr), []
    for images, labels in batches:
        loss = F.cross_entropy(right(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())

    watched = WatchedSGD(model, lr)
    model.eval()  # as an evaluation in between may have left it
    for parameter in model.parameters():  # old gradients, as somebody's backward before may have left them
        parameter.grad = new.randn(*parameter.shape)
    given = copy.deepcopy(batches)
    try:
        yours = [call(answer, model, *pair, watched, may_change=True) for pair in given]
    except AnswerRaised as raised:
        # A step between the prediction and its backward changes weights that backward needs: PyTorch notices.
        if "step" in watched.events and "modified by an inplace operation" in str(raised):
            _step_came_first("the step changed weights that `backward()` still needed, and PyTorch noticed")
        raise
    intact(model, start)
    untouched(given, batches)
    if not torch.allclose(weights(model), weights(right), rtol=1e-4, atol=1e-5):
        _diagnose_step(watched.events, model, start, batches, lr)
        same(
            weights(model),
            weights(right),
            "The model after three of your steps (all its weights in one row)",
            look="loss of the batch, gradients, one `optimizer.step()`",
        )
    if not all(training for _, training, _ in model[1].seen):
        raise Incorrect(
            "The model came in eval mode and your step left it there: dropout and batch norm would not train.",
            "train mode while the images go through",
            "eval mode",
            "`model.train()` at the start",
        )
    for value, expected, (_, labels) in zip(yours, losses, batches, strict=True):
        value = number(value, "What you return")
        mistake(
            value, expected * len(labels), "You return the sum of the losses; wanted is the batch's mean, as it came."
        )
        same(value, expected, "The loss you return", look="the loss from before the step")


def _diagnose_step(events: list[str], model: nn.Module, start: nn.Module, batches: list[Batch], lr: float) -> None:
    """Say what is wrong with a step that led to other weights: by the order of events, else by comparing weights."""
    happened = [event.replace("summed", "backward") for event in events]
    order = "what happened: " + (" → ".join(_without_repeats(happened)[:4]) or "nothing")
    if "backward" not in happened:
        raise Incorrect("No gradient was ever computed.", "`loss.backward()` in each step", order)
    if "step" not in happened:
        if torch.equal(weights(model), weights(start)):
            text = "The optimizer never took a step: the weights are what they were."
        else:
            text = "The optimizer that came in never took a step: something else changed the weights."
        raise Incorrect(text, "`optimizer.step()`", order)
    if happened.index("step") < happened.index("backward"):
        _step_came_first(order)
    if "zero_grad" in happened[happened.index("backward") : happened.index("step")] or torch.equal(
        weights(model), weights(start)
    ):
        raise Incorrect(
            "The gradients are cleared between backward and step: nothing is left for the step to use.",
            "zero_grad → backward → step",
            order,
            "the place of `optimizer.zero_grad()`",
        )
    if "summed" in events:
        raise Incorrect(
            "The gradients of earlier batches are still there: `backward()` adds to them, so a step repeats old ones.",
            "`optimizer.zero_grad()` before each backward",
            order,
        )
    if happened.count("step") > len(batches):
        raise Incorrect(
            "Your function takes more than one step for a batch.",
            f"{len(batches)} steps for {len(batches)} batches",
            f"{happened.count('step')} steps",
            "`optimizer.step()`",
        )

    def trained(measure: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
        """The weights after the same steps with another loss."""
        wrong = copy.deepcopy(start)
        optimizer = torch.optim.SGD(wrong.parameters(), lr=lr)
        for images, labels in batches:
            optimizer.zero_grad()
            measure(wrong(images), labels).backward()
            optimizer.step()
        return weights(wrong)

    mistake(
        weights(model),
        trained(lambda logits, labels: F.cross_entropy(logits.softmax(1), labels)),
        "There is a softmax before the cross-entropy, which has one inside: the model learns, but slowly.",
        "give the logits to `F.cross_entropy` as they are",
    )
    mistake(
        weights(model),
        trained(lambda logits, labels: F.cross_entropy(logits, labels, reduction="sum")),
        "Your steps use the sum of the losses: they are as many times too long as the batch has images.",
        "the mean, which `F.cross_entropy` takes by itself",
    )


def _step_came_first(happened: str) -> NoReturn:
    raise Incorrect(
        "Your step comes before the backward pass: it uses no gradient, or the last batch's.",
        "backward → step",
        happened,
        "the order of `optimizer.step()` and `loss.backward()`",
    )


def _without_repeats(events: Iterable[str]) -> list[str]:
    """Neighbors that are equal count once."""
    kept: list[str] = []
    for event in events:
        if not kept or kept[-1] != event:
            kept.append(event)
    return kept


@exercise(
    "evaluate_model",
    seconds=SLOW_START,
    title="How good is it?",
    minutes=8,
    difficulty=3,
    points=3,
    takeaway="Sum over images, divide once: then it does not matter how the images were cut into batches.",
    hints=(
        "Four things around the loop: eval mode, no gradients, sums over images, and the old mode back at the end.",
        "`was = model.training`, `model.eval()`, `with torch.no_grad():` … `model.train(was)`. In the loop, "
        "a batch's loss is a mean: what is its sum?",
        "`loss_sum += F.cross_entropy(logits, labels).item() * len(labels)`, `right += (…).sum().item()`, "
        "`images_seen += len(labels)`.",
    ),
)
def evaluate_model(answer: Any, new: Inputs) -> None:
    (height, width), classes = new.sizes(2, 3, 6), new.size(3, 6)
    model = network(new, height * width, classes, norm=True)
    sizes = [*([new.size(9, 14)] * new.size(2, 3)), new.size(2, 4)]
    batches = [batch(new, size, height, width, classes) for size in sizes]
    right = copy.deepcopy(model).eval()
    with torch.no_grad():
        logits = [right(images) for images, _ in batches]
    losses = [F.cross_entropy(out, labels).item() for out, (_, labels) in zip(logits, batches, strict=True)]
    hits = [(out.argmax(1) == labels).sum().item() for out, (_, labels) in zip(logits, batches, strict=True)]
    # A short last batch that is right or wrong in another way than the rest: then the mean of the means is off.
    images, labels = batches[-1]
    best, worst = logits[-1].argmax(1), logits[-1].argmin(1)
    labels = best if sum(hits[:-1]) / sum(sizes[:-1]) < 0.5 else worst
    batches[-1], hits[-1] = (images, labels), (len(labels) if labels is best else 0)
    losses[-1] = F.cross_entropy(logits[-1], labels).item()
    total = sum(sizes)
    loss, share = sum(x * n for x, n in zip(losses, sizes, strict=True)) / total, sum(hits) / total

    before = copy.deepcopy(model.state_dict())
    model.train()
    given = copy.deepcopy(batches)
    yours = call(answer, model, given, may_change=True)
    gradients_still_on()
    intact(model, right)
    untouched(given, batches)
    seen = model[1].seen
    if any(training for _, training, _ in seen):
        raise Incorrect(
            "The images went through the model in train mode: batch norm used and changed its statistics.",
            "eval mode while you measure",
            "train mode",
            "`model.eval()` before the loop",
        )
    if any(gradients for _, _, gradients in seen):
        raise Incorrect(
            "A graph was recorded for each batch, although nobody calls backward: memory and time for nothing.",
            "gradients switched off",
            "gradients switched on",
            "`with torch.no_grad():` around the loop",
        )
    if any(not torch.equal(value.cpu(), before[name]) for name, value in model.state_dict().items()):
        raise Incorrect(
            "The model has other weights after your evaluation: measuring must not train.", look="`optimizer.step()`"
        )
    if not isinstance(yours, (tuple, list)) or len(yours) != 2:
        raise Incorrect("Your function does not return two numbers.", "(loss, accuracy)", yours, "`return`")
    got_loss, got_share = number(yours[0], "Your loss"), number(yours[1], "Your accuracy")
    if close(got_loss, share) and close(got_share, loss):
        raise Incorrect("The two numbers are the other way round.", "(loss, accuracy)", "(accuracy, loss)")
    means = "This is the mean of the batches' means: the short last batch counts as much as a full one."
    slip(got_loss, loss, sum(losses) / len(losses), f"Your loss is off. {means}", "weight each batch by `len(labels)`")
    without_last = sum(x * n for x, n in zip(losses[:-1], sizes[:-1], strict=True)) / sum(sizes[:-1])
    slip(got_loss, loss, without_last, "Your loss leaves out the last batch, the short one.", "the end of the loop")
    softened = sum(
        F.cross_entropy(out.softmax(1), labels, reduction="sum").item()
        for out, (_, labels) in zip(logits, batches, strict=True)
    )
    text = "There is a softmax before the cross-entropy, which has one inside."
    slip(got_loss, loss, softened / total, text, "give the logits to `F.cross_entropy` as they are")
    slip(got_loss, loss, losses[-1], "Your loss is that of the last batch alone.", "add up inside the loop")
    slip(got_loss, loss, losses[0], "Your loss is that of the first batch alone.", "a `return` inside the loop?")
    slip(
        got_loss, loss, sum(losses) / total, "Your loss adds up means and divides by images: each mean times its size."
    )
    slip(got_loss, loss, loss * total, "Your loss is a sum: divide by the number of images.")
    by_batch = sum(h / n for h, n in zip(hits, sizes, strict=True)) / len(hits)
    slip(got_share, share, by_batch, f"Your accuracy is off. {means}", "count the right ones, divide once")
    slip(got_share, share, sum(hits), "Your accuracy is a count: divide by the number of images.")
    slip(got_share, share, 100 * share, "Your accuracy is in percent; wanted is a share from 0 to 1.")
    same(got_loss, loss, "Your loss")
    same(got_share, share, "Your accuracy")
    for mode in (True, False):
        model.train(mode)
        call(answer, model, copy.deepcopy(batches), may_change=True)
        if model.training != mode:
            names = {True: "train mode", False: "eval mode"}
            raise Incorrect(
                "The model is not left in the mode in which it came: what runs next would run in the wrong one.",
                names[mode],
                names[not mode],
                "keep `model.training` before, `model.train(that)` after",
            )


@exercise(
    "repair_training",
    seconds=SLOW_START,
    title="Repair a loop",
    minutes=8,
    difficulty=4,
    points=3,
    takeaway="None of the five faults raises anything. Read every loop for: mode, zero_grad, logits, item, no_grad.",
    hints=(
        "Go through the loop with five questions: which mode? whose gradients? what does cross_entropy want? "
        "what is kept in the lists? who needs a graph?",
        "The first epoch trains in train mode. Does the second? Who clears the gradients for the second batch?",
        "`model.train()` and `optimizer.zero_grad()` move inside; no softmax; `losses.append(loss.item())`; "
        "`with torch.no_grad():` around the validation loop.",
    ),
)
def repair_training(answer: Any, new: Inputs) -> None:
    (height, width), classes, lr, epochs = new.sizes(2, 3, 5), new.size(3, 5), 0.3, new.size(2, 3)
    small, large = new.size(8, 11), new.size(12, 15)  # tells a training batch from a validation batch
    accuracies = [0.0]
    while accuracies[0] == accuracies[-1] or accuracies[0] == accuracies[1]:  # a count that runs on would not show
        model = network(new, height * width, classes, norm=True)
        training = [batch(new, large, height, width, classes) for _ in range(new.size(2, 3))]
        validation = [batch(new, small, height, width, classes) for _ in range(2)]
        right = copy.deepcopy(model)
        losses, accuracies = _train_well(right, training, validation, lr, epochs)
    with torch.no_grad():
        soft = F.cross_entropy(copy.deepcopy(model).train()(training[0][0]).softmax(1), training[0][1]).item()

    watched = WatchedSGD(model, lr)
    yours = call(answer, model, *copy.deepcopy((training, validation)), watched, epochs, may_change=True)
    gradients_still_on()
    intact(model, right)
    if not isinstance(yours, (tuple, list)) or len(yours) != 2 or not all(isinstance(x, (tuple, list)) for x in yours):
        raise Incorrect("Your function does not return two lists.", "(losses, accuracies)", yours, "`return`")
    if (len(yours[0]), len(yours[1])) == (len(accuracies), len(losses)):
        raise Incorrect("The two lists are the other way round.", "(losses, accuracies)", "(accuracies, losses)")
    for row, wanted, name in ((yours[0], losses, "losses, one for each batch"), (yours[1], accuracies, "accuracies")):
        if len(row) != len(wanted):
            raise Incorrect(f"The list has the wrong length: {name}.", f"{len(wanted)} values", f"{len(row)} values")

    got = [plain_number(value) for value in yours[1]]
    if None not in got and not all(map(close, got, accuracies)) and all(size == large for size, _, _ in model[1].seen):
        raise Incorrect(
            "The validation batches never went through the model: your accuracy is that of images it learned from.",
            look="the second loop over batches",
        )
    faults = _faults(yours[0], watched.events, model[1].seen, small, large, soft)
    if faults:
        problem, expected, look = faults[0]
        rest = {1: "", 2: " After this one, one more fault remains."}.get(
            len(faults), f" After this one, {len(faults) - 1} more faults remain."
        )
        raise Incorrect(problem + rest, expected, look=look)
    events = watched.events
    if ("backward", "zero_grad", "step") in zip(events, events[1:], events[2:], strict=False):
        raise Incorrect(
            "The gradients are cleared between backward and step: nothing is left for the step to use.",
            "zero_grad → backward → step",
            look="the place of `optimizer.zero_grad()`",
        )
    same(
        weights(model),
        weights(right),
        "The trained model (all its weights in one row)",
        look="for each batch: logits, loss, zero_grad, backward, step",
    )
    running = [sum(accuracies[: i + 1]) / (i + 1) for i in range(epochs)]
    text = "From the second epoch on your accuracy still counts the validation of the epochs before."
    mistake(got, running, text, "`right, count = 0, 0` belongs in the loop over the epochs")
    for got, wanted, what in (
        *((a, b, "A loss") for a, b in zip(yours[0], losses, strict=True)),
        *((a, b, "An accuracy") for a, b in zip(yours[1], accuracies, strict=True)),
    ):
        same(number(got, what), wanted, what)


def _train_well(
    model: nn.Module, training: list[Batch], validation: list[Batch], lr: float, epochs: int
) -> tuple[list[float], list[float]]:
    """The repaired loop."""
    optimizer, losses, accuracies = torch.optim.SGD(model.parameters(), lr=lr), [], []
    for _ in range(epochs):
        model.train()
        for images, labels in training:
            loss = F.cross_entropy(model(images), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        model.eval()
        with torch.no_grad():
            right = sum((model(images).argmax(1) == labels).sum().item() for images, labels in validation)
        accuracies.append(right / sum(len(labels) for _, labels in validation))
    return losses, accuracies


def _faults(
    losses: Sequence[Any], events: list[str], seen: list[tuple[int, bool, bool]], small: int, large: int, soft: float
) -> list[tuple[str, str, str]]:
    """The faults that are still in the loop: (what is wrong, what was expected, where to look)."""
    found = []
    modes = [training for size, training, gradients in seen if size == large and gradients]
    if not all(modes):
        text = "From the second epoch on the model trains in eval mode: nobody switches back after the validation."
        if not modes[0]:
            text = "The model trains in eval mode: dropout and batch norm do not train."
        found.append((text, "train mode for every training batch", "`model.train()` at the start of each epoch"))
    if "summed" in events:
        text = "The gradients of all batches add up: they are never cleared between two steps."
        found.append((text, "zero_grad for every batch", "`optimizer.zero_grad()` belongs in the inner loop"))
    first = plain_number(losses[0])
    if first is not None and close(first, soft):
        text = "There is still a softmax before the cross-entropy, which has one inside."
        found.append((text, "logits for `F.cross_entropy`", "the line with `softmax`"))
    if any(isinstance(loss, Tensor) for loss in losses):
        text = "Your list of losses holds tensors, and each tensor keeps its graph: the memory grows with every batch."
        if not any(isinstance(loss, Tensor) and loss.requires_grad for loss in losses):
            text = "Your list of losses holds tensors; whoever draws or saves them wants Python numbers."
        found.append((text, "Python numbers", "`losses.append`: take the number out with `.item()`"))
    if any(size == small and gradients for size, _, gradients in seen):
        text = "The validation still records a graph, although nobody calls backward there."
        found.append((text, "gradients switched off", "`with torch.no_grad():` around the validation loop"))
    if any(size == small and training for size, training, _ in seen):
        text = "The validation runs in train mode: batch norm learns from the validation images."
        found.append((text, "eval mode for the validation", "`model.eval()` before the validation loop"))
    return found


@exercise(
    "momentum_step",
    seconds=SLOW_START,
    title="Stretch: momentum",
    minutes=10,
    difficulty=4,
    points=2,
    takeaway="You have written `torch.optim.SGD(momentum=...)`: an optimizer is a loop over the parameters, no more.",
    hints=(
        "Loop over parameters and velocities together. First the velocity, then the parameter, both in place.",
        "Changing a parameter in place is forbidden while autograd records: `with torch.no_grad():`. "
        "Skip a parameter whose `grad` is None.",
        "`v.mul_(momentum).add_(p.grad)`, then `p.sub_(learning_rate * v)`.",
    ),
)
def momentum_step(answer: Any, new: Inputs) -> None:
    shapes = [tuple(new.sizes(2, 2, 5)), (new.size(2, 6),), (new.size(2, 6),), (new.size(2, 6),)]
    momentum = new.pick((0.6, 0.7, 0.8))  # not 0.9, which one would write down, nor 0.5, where 1 − momentum is the same
    rates = [0.5, 0.1, 0.3]  # a rate that changes tells where in the formula it stands
    start = [new.randn(*shape) for shape in shapes]
    gradients: list[list[Tensor | None]] = [[new.randn(*shape) for shape in shapes] for _ in rates]
    for row in gradients:
        row[1] = None  # frozen, with others behind it
    gradients[-1][2] = None  # had gradients and gets none in the last step

    def after(step: Callable[[list[nn.Parameter], list[Tensor], float], Any]) -> tuple[list[Tensor], list[Tensor]]:
        """Parameters and velocities after the steps."""
        parameters = [nn.Parameter(value.clone()) for value in start]
        velocities = [torch.zeros_like(value) for value in start]
        for rate, row in zip(rates, gradients, strict=True):
            for parameter, gradient in zip(parameters, row, strict=True):
                parameter.grad = None if gradient is None else gradient.clone()
            own = list(parameters)
            step(parameters, velocities, rate)
            if len(own) == len(parameters) and any(a is not b for a, b in zip(own, parameters, strict=True)):
                raise Incorrect(
                    "You put new tensors into the list of parameters: the model still has the old ones, unchanged.",
                    "the same parameters with new values",
                    look="methods that work in place: `p.sub_(...)`, `p -= ...`",
                )
            if not all(parameter.requires_grad for parameter in parameters):
                raise Incorrect(
                    "Your step switched off `requires_grad`: these parameters would never get a gradient again.",
                    look="`with torch.no_grad():` instead",
                )
            gradients_still_on()
            for kept in (parameters, velocities):
                if [value.shape if isinstance(value, Tensor) else None for value in kept] != [v.shape for v in start]:
                    raise Incorrect(
                        "The lists no longer hold what they held: one tensor for each parameter, same shapes."
                    )
        for parameter, gradient in zip(parameters, gradients[-1], strict=True):
            if gradient is not None and (parameter.grad is None or not torch.equal(parameter.grad, gradient)):
                raise Incorrect(
                    "Your step changed or cleared the gradients. That is the business of zero_grad.",
                    look="what works in place on `p.grad`",
                )
        return [p.detach() for p in parameters], velocities

    optimizer: list[torch.optim.SGD] = []

    def reference(parameters: list[nn.Parameter], velocities: list[Tensor], rate: float) -> None:
        if not optimizer:
            optimizer.append(torch.optim.SGD(parameters, lr=rate, momentum=momentum))
        optimizer[0].param_groups[0]["lr"] = rate
        optimizer[0].step()

    def variant(keep: float, take: float, inside: bool = False) -> Callable:
        def step(parameters: list[nn.Parameter], velocities: list[Tensor], rate: float) -> None:
            for p, v in zip(parameters, velocities, strict=True):
                if p.grad is not None:
                    v.mul_(keep).add_(p.grad, alpha=take * (rate if inside else 1))
                    p.data.sub_(v if inside else rate * v)

        return step

    parameters, velocities = after(
        lambda p, v, rate: call(answer, p, v, rate, momentum, may_change=True, may_return_none=True)
    )
    yours = torch.cat([parameters[0].flatten(), parameters[3]])

    def known(step: Callable) -> Tensor:
        result = after(step)[0]
        return torch.cat([result[0].flatten(), result[3]])

    def old_velocity(parameters: list[nn.Parameter], velocities: list[Tensor], rate: float) -> None:
        for p, v in zip(parameters, velocities, strict=True):
            if p.grad is not None:
                p.data.sub_(rate * v)
                v.mul_(momentum).add_(p.grad)

    def without_rate(parameters: list[nn.Parameter], velocities: list[Tensor], rate: float) -> None:
        variant(momentum, 1)(parameters, velocities, 1.0)

    look = "v ← momentum · v + gradient, then p ← p − learning rate · v"
    mistake(
        yours,
        torch.cat([start[0].flatten(), start[3]]),
        "The parameters are what they were: `p = p - …` gives a new tensor the name p and changes nothing.",
        "methods that work in place: `p.sub_(...)`, `p -= ...`",
    )
    mistake(yours, known(variant(0, 1)), "The velocity forgets everything: this is plain SGD without momentum.", look)
    text = "You mixed in only a part of the gradient, (1 − momentum). PyTorch's SGD adds all of it."
    mistake(yours, known(variant(momentum, 1 - momentum)), text, look)
    text = "The learning rate stands inside the velocity. That is the same only as long as the rate does not change."
    mistake(yours, known(variant(momentum, 1, inside=True)), text, look)
    mistake(yours, known(variant(momentum, -1)), "Your step goes uphill: subtract the velocity, do not add it.", look)
    text = "The momentum multiplies the gradient too: it belongs to the old velocity alone."
    mistake(yours, known(variant(momentum, momentum)), text, look)
    mistake(yours, known(without_rate), "The learning rate is missing: the step is learning rate · velocity.", look)
    text = "Your step uses the velocity from before: first the velocity takes in the gradient, then comes the step."
    mistake(yours, known(old_velocity), text, look)
    behind = "A parameter behind one whose grad is None stood still: skip that one, and go on with the others."
    mistake(parameters[3], start[3], behind, "`continue`, not `break` or `return`")
    right = after(reference)[0]
    expected = torch.cat([right[0].flatten(), right[3]])
    same(yours, expected, "The row of all parameters after three of your steps", look=look)
    for i in (1, 2):
        same(
            parameters[i],
            right[i],
            "The parameter whose grad is None",
            look="skip it: its old velocity must not move it",
        )
    for i in (0, 3):
        buffer = optimizer[0].state[optimizer[0].param_groups[0]["params"][i]]["momentum_buffer"]
        same(
            velocities[i],
            buffer,
            "A velocity after three of your steps",
            look="kept from step to step: change it in place",
        )
