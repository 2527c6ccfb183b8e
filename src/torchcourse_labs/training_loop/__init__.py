"""The exercises of chapter 02: a gradient by hand, and the pieces of a training loop."""

import copy
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from labcheck import probes
from labcheck.answer import call
from labcheck.inputs import Inputs
from labcheck.probes import SLOW_START, Batch, Passes, WatchedSGD, network, plain_number, weights
from torchcourse_labs import _splits as splits
from torchcourse_labs._loops import CHANGED, FORBIDDEN, side_effects, then, watch_training, wrong_loss, wrong_order  # noqa: F401 - for the tables
from torchcourse_labs._spec import Mistake, Spec, changed, chapter, says  # noqa: F401 - for the tables

EXERCISES = ()  # declared below

exercise = chapter("02_training_loop")


# ---------------------------------------------------------------------------------------------------------------------


def _lines(new: Inputs) -> list[tuple]:
    """Gradients of both signs, several numbers of pairs, and a single pair."""
    n, m = new.sizes(2, 4, 9)
    up, down = new.rand(2) + 1.5
    return [(w, new.rand(k) + 0.5, new.randn(k) - 1) for w, k in ((up, n), (-down, m), (up / 2, 1))]


exercise(
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
    spec=Spec(
        draw=_lines,
        solution=lambda w, x, y: (2 * (w * x - y) * x).mean(),
        look="outer derivative times inner derivative, then the mean",
        mistakes="""
            = ((w * x - y) * x).mean()
                The factor 2 is missing: the derivative of a square u² is 2·u.
            = (2 * (w * x - y)).mean()
                The inner derivative is missing: w·x changes by x when w changes by 1.
            = (2 * (w * x - y) * w).mean()
                You multiplied by w. That is the derivative with respect to x: w·x changes by x when w changes.
            = (2 * (w * x - y) * x).sum()
                You took the sum over the pairs; the loss is their mean.
            = (2 * (y - w * x) * x).mean()
                The sign is the wrong way around: the error is prediction minus target, w·x − y.
            = (2 * (w * x - y) * x).mean().abs()
            = (2 * (w * x - y).abs() * x).mean()
                You took the absolute value. The sign of a gradient says in which direction the loss grows.
            = 2 * (w * x - y).mean() * x.mean()
                You multiplied two means: multiply pair by pair, then average.
            = (w * x - y).square().mean()
                This is the loss itself. The question is how it changes with w.
            = 2 * (w * x - y) * x
                You return one number for each pair. The loss is a mean, so its derivative is a mean as well.
                when: yours.shape == x.shape and (len(x) > 1 or yours.dim() == 1)
            = (2 * (w * x - y) * x).mean().item()
            = (2 * (w * x - y) * x).mean().double()
            = (2 * (w * x - y) * x).mean()[None]
                Your gradient should be a float32 tensor without axes, like w. Yours is {yours}.
                look: `.mean()` of a float32 tensor gives one, without `.item()`
                when: not says(yours, "") and (not isinstance(yours, Tensor) or yours.dtype != expected.dtype or
                    yours.shape == (1,))
            = ((w * x + 0.05 * x - y).square().mean() - (w * x - y).square().mean()) / 0.05
                Close, but not exact: this looks like a difference quotient. The derivative has a formula.
                when: (yours - expected).abs() < 0.1 * expected.abs() + 0.1
        """,
        also_right=[
            lambda w, x, y: torch.func.grad(lambda w: ((w * x - y) ** 2).mean())(w),
            lambda w, x, y: torch.dot(w * x - y, x) * 2 / x.numel(),
            lambda w, x, y: torch.tensor(np.mean(2 * (w.numpy() * x.numpy() - y.numpy()) * x.numpy())),
        ],
    ),
)


# ---------------------------------------------------------------------------------------------------------------------


def _answers_of_a_network(new: Inputs) -> list[tuple]:
    """First as many images as classes: there, mixing up the two axes gives a number instead of an error. Then a prime
    number of images: no share of them is a round number. Then few images, all right, some with high probabilities."""
    square = new.size(7, 12)
    cases = [_ranked(new, n, classes) for n, classes in ((square, square), (new.pick((17, 19, 23, 29, 31)), 35))]
    labels = torch.tensor([2, 0, 0])
    sure = new.rand(3, 4).double() + F.one_hot(labels, 4) * torch.tensor([[9], [8], [1.1]])
    return [*cases, (sure, labels)]


def _ranked(new: Inputs, n: int, classes: int) -> tuple[Tensor, Tensor]:
    """Logits and labels. Some labels have the largest logit, some the second largest, one the smallest, others any."""
    logits = new.randn(n, classes) / 5 + 2 * (-1) ** torch.arange(n)[:, None]  # some exceed 0.5, no probability does
    labels = new.ints(0, classes, (n,))
    right, second = new.size(2, n // 2 - 1), new.size(1, 2)
    others = [new.size(2, classes - 1) for _ in range(n - right - second - 1)]
    ranks = [0] * right + [1] * second + others + [classes - 1]
    for i, rank in zip(new.permutation(n).tolist(), ranks, strict=True):
        other = logits[i].argsort(descending=True)[rank]
        logits[i, [labels[i], other]] = logits[i, [other, labels[i]]]
    return logits, labels


def _accuracy(logits, labels):
    return (logits.argmax(dim=1) == labels).float().mean().item()


exercise(
    "accuracy",
    title="Accuracy",
    minutes=3,
    difficulty=1,
    points=1,
    takeaway="The largest logit is also the largest probability: you don't need a softmax for the accuracy.",
    hints=(
        "Which class does the model choose for each image? Compare with the labels, then take the mean.",
        "`logits.argmax(dim=1)` gives one class for each row; `==` compares; a mean needs floats.",
        "`(logits.argmax(dim=1) == labels).float().mean()`, and `.item()` for a Python number.",
    ),
    spec=Spec(
        draw=_answers_of_a_network,
        solution=_accuracy,
        rtol=1e-5,
        atol=1e-6,
        mistakes="""
            = logits.argmax(1) == labels
                You return one value for each image: take the mean of them.
                when: len(yours) == len(labels)
            = (logits.argmax(1) == labels).float().mean()
            = np.float32((logits.argmax(1) == labels).float().mean().item())
                Your result is not a Python number, but {yours}. A tensor is the wrong thing to keep.
                look: `.item()` takes the number out
                when: isinstance(yours, Tensor | np.generic | np.ndarray) and np.prod(yours.shape) == 1
            == → !=
                This is the share of wrong answers; the accuracy is that of right ones.
            .mean() → .sum()
                This is the number of right answers: divide it by the number of images.
            .mean().item() → .mean().item() * 100
                This is the accuracy in percent; the question is for a share from 0 to 1.
            dim=1 → dim=1, keepdim=True
                You compared every prediction with every label: the shapes [N, 1] and [N] broadcast to [N, N].
            dim=1 → None
                `argmax()` without `dim` looks for the largest logit of the whole tensor, not of each row.
            argmax → amax
                You compared the largest logits with the labels. What counts is where they are: `argmax`.
            dim=1 → dim=0
                You took the argmax over the images, for each class. What counts is the best class for each image.
                look: the `dim` of argmax: the classes lie along axis 1
            = (logits.topk(2, dim=1).indices == labels[:, None]).any(dim=1).float().mean().item()
                You count a label that has the second largest logit as right. Only the largest one counts.
            = ((logits.argmax(1) == labels) & (logits.softmax(1).amax(1) > 0.5)).float().mean().item()
            = (logits.softmax(1)[range(len(labels)), labels] > 0.5).double().mean().item()
            = (logits[range(len(labels)), labels] > 0.5).double().mean().item()
                You count only confident answers. The largest logit decides, however small its probability is.
            = int(_accuracy(logits, labels))
                Your share is a whole number: `//` and `int` drop everything after the decimal point.
                look: `/` divides two integers into a float
            = round(_accuracy(logits, labels), 2)
                Your accuracy is rounded, from {expected} to {yours}. Round when you print it, not before.
                when: 0 < abs(yours - expected) <= 0.005
        """,
        also_right=[
            lambda logits, labels: int((torch.softmax(logits, -1).max(-1).indices == labels).sum()) / len(labels),
            lambda logits, labels: float(np.mean(logits.numpy().argmax(axis=1) == labels.numpy())),
            lambda logits, labels: (logits.topk(1).indices[:, 0] - labels).eq(0).double().mean().tolist(),
        ],
    ),
)


# ---------------------------------------------------------------------------------------------------------------------


def _splits(new: Inputs) -> list[tuple]:
    """A share that comes out even and one that does not; seed 0, which `if seed` takes for none; empty parts."""
    share = new.pick((0.13, 0.17, 0.23, 0.3, 0.35))
    uneven = next(n for n in range(new.size(101, 300), 500) if 0.6 < n * share % 1 < 0.95)
    return [
        (20 * new.size(5, 30), new.pick((0.1, 0.15, 0.2, 0.25)), new.size(1, 1000)),
        (uneven, share, 0),
        (new.size(5, 9), 0.1, new.size(1, 1000)),
        (new.size(5, 9), new.pick((0.0, 1.0)), new.size(1, 1000)),
    ]


def _split(n, fraction, seed):
    order = torch.randperm(n, generator=torch.Generator().manual_seed(seed))
    k = int(n * fraction)
    return order[k:], order[:k]


exercise(
    "split_indices",
    title="Training and validation",
    minutes=6,
    difficulty=2,
    points=2,
    takeaway="With its own generator, the split is the same in every run, and no other random numbers change.",
    hints=(
        "Shuffle the numbers 0 to n − 1, then cut the result in two.",
        "`torch.randperm(n, generator=...)` shuffles; `torch.Generator().manual_seed(seed)` is your own generator.",
        "`order = torch.randperm(n, generator=generator)`, `k = int(n * fraction)`, return `order[k:], order[:k]`.",
    ),
    spec=Spec(
        draw=_splits,
        solution=_split,
        measure=splits.split_report,
        mistakes=[
            """
            int(n * fraction)
                    → round(n * fraction) || n - int(round(n * (1 - fraction), 6)) || max(1, int(n * fraction))
                Your validation part is one larger than `int(n * fraction)`, which rounds down: {expected[Sizes]} is
                right, yours are {yours[Sizes]}.
                when: yours["Sizes"][1] == expected["Sizes"][1] + 1
            """,
            *splits.split_mistakes(_split, changed(_split, ("int(n * fraction)", "n // 3"))),
        ],
        habits=splits.split_habits(_split),
        also_right=splits.right_splits(_split),
    ),
)


# ---------------------------------------------------------------------------------------------------------------------


def _batches(new: Inputs, sizes: Sequence[int], height: int, width: int, classes: int) -> list[Batch]:
    return [probes.batch(new, size, height, width, classes) for size in sizes]


def _before_steps(new: Inputs) -> list[tuple]:
    (height, width), classes = new.sizes(2, 3, 6), new.size(3, 7)
    sizes = [new.size(5, 11) for _ in range(3)]
    model = network(new, height * width, classes)
    return [(model, _batches(new, sizes, height, width, classes), 0.3)]


def _step(model, images, labels, optimizer):
    model.train()
    loss = F.cross_entropy(model(images), labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.item()


def _three_steps(answer: Any, model: nn.Module, batches: list[Batch], lr: float) -> dict[str, Any]:
    start, model, given = model, *copy.deepcopy((model, batches))
    model.eval()  # as an evaluation may have left it
    optimizer = WatchedSGD(model, lr)
    for parameter in model.parameters():  # old gradients, as another backward may have left them
        parameter.grad = torch.full_like(parameter, 0.5)
    losses: list[Any] = [None] * len(batches)
    for i, pair in enumerate(given):
        with torch.enable_grad():
            losses[i] = call(answer, model, *pair, optimizer, may_change=True)
            changed_things = sorted({*FORBIDDEN} & {*probes.changes(model, start, given, batches)})
        if changed_things:
            break
    return {
        CHANGED: changed_things,
        "The model after three of your steps (all its weights in one row)": weights(model),
        "The number of training passes in eval mode": sum(
            seen["mode"] != "train" for seen in optimizer.passes if seen["graph"] and not seen["copy"]
        ),
        "The number of further passes in train mode": max(
            0, sum(seen["mode"] == "train" and not seen["copy"] for seen in optimizer.passes) - len(batches)
        ),
        **{f"The loss that you return for batch {i}": loss for i, loss in enumerate(losses, 1)},
        "losses": losses,
    } | watch_training(optimizer, model, start)


_BY_AUTOGRAD = "for p, g in zip(model.parameters(), torch.autograd.grad(loss, [*model.parameters()])): p.grad = g"

exercise(
    "train_step",
    seconds=SLOW_START,
    title="One step of training",
    minutes=7,
    difficulty=3,
    points=2,
    takeaway="Clear, backward, step: the order counts, and no error tells you when it is wrong.",
    hints=(
        "In this order: mode, prediction, loss, gradients, step. Clear the old gradients before you compute new ones.",
        "`model.train()`, `F.cross_entropy(model(images), labels)`, `optimizer.zero_grad()`, `loss.backward()`, "
        "`optimizer.step()`.",
        "Return the number, not the tensor: `return loss.item()`.",
    ),
    spec=Spec(
        draw=_before_steps,
        solution=_step,
        rtol=1e-5,
        atol=3e-6,
        measure=lambda ask, model, batches, lr: ask.observe(_three_steps, model, batches, lr),
        mistakes=[
            *side_effects(_step, lambda model, images, *given: images.zero_()),
            *wrong_order(_step),
            *wrong_loss(_step),
            """
            model.train() → pass || model.eval()
                The model was in eval mode when it got the images: dropout was off, and batch norm used its
                running statistics.
                look: `model.train()` at the start, before the forward pass
                when: yours["The number of training passes in eval mode"]
            loss.item() → loss || loss.detach()
                The loss you return is a tensor: return a Python number. It may keep its graph, and with it every step.
                look: `.item()` takes the number out
                when: any(isinstance(loss, Tensor) for loss in yours["losses"])
            labels) → labels, reduction="sum") && loss.item() → loss.item() / len(labels)
                You return the mean, but you went backward from the sum: your step is as many times too large as the
                batch has images.
                look: `reduction="sum"`: the default is the mean
            loss.item() → loss.item() * len(labels) || loss.item() / len(labels)
                You multiply or divide the loss by the batch size: return the mean, as `F.cross_entropy` gives it.
            loss.item() → F.cross_entropy(model(images), labels).item()
                You return the loss of the batch after the step; the docstring asks for the one before.
            loss = → model(images); loss =
                In your step, the batch goes through the model more than once in train mode: batch norm would count its
                images twice, and dropout would give another loss.
                look: call `model(images)` once, and use its result for the loss and for the number that you return
                when: yours["The number of further passes in train mode"]
            """,
        ],
        also_right=[
            changed(_step, ("optimizer.zero_grad()", "pass"), ("loss =", "model.zero_grad(set_to_none=False); loss =")),
            changed(_step, ("loss.backward()", _BY_AUTOGRAD), ("loss.item()", "float(loss.detach())")),
            changed(_step, ("loss.backward()", "pass"), ("optimizer.step()", "optimizer.step(loss.backward)")),
        ],
    ),
)


# ---------------------------------------------------------------------------------------------------------------------


def _before_evaluations(new: Inputs) -> list[tuple]:
    """Once in train mode, with a short last batch that is all right or all wrong: there the mean of the means is off.
    Once in eval mode, with batches of the same size."""
    (height, width), classes = new.sizes(2, 3, 6), new.size(3, 6)
    model = network(new, height * width, classes, norm=True)
    batches = _batches(new, [*([new.size(9, 14)] * new.size(2, 3)), new.size(2, 4)], height, width, classes)
    (images, _), shares = batches[-1], _means(model, batches)[1]
    logits = copy.deepcopy(model).eval()(images)
    batches[-1] = images, logits.argmax(1) if sum(shares[:-1]) / len(shares[:-1]) < 0.5 else logits.argmin(1)
    return [(model, batches, True), (model, _batches(new, [new.size(5, 8)] * 2, height, width, classes), False)]


def _means(model: nn.Module, batches: list[Batch]) -> tuple[list[float], list[float], list[int]]:
    """Of each batch: mean loss, share of right answers, size."""
    model = copy.deepcopy(model).eval()
    with torch.no_grad():
        outs = [(model(images), labels) for images, labels in batches]
    losses = [F.cross_entropy(logits, labels).item() for logits, labels in outs]
    shares = [(logits.argmax(1) == labels).double().mean().item() for logits, labels in outs]
    return losses, shares, [len(labels) for _, labels in outs]


def _evaluate(model, batches):
    was_training = model.training
    model.eval()
    loss_sum, right, seen = 0.0, 0, 0
    with torch.no_grad():
        for images, labels in batches:
            logits = model(images)
            loss_sum += F.cross_entropy(logits, labels).item() * len(labels)
            right += (logits.argmax(dim=1) == labels).sum().item()
            seen += len(labels)
    model.train(was_training)
    return loss_sum / seen, right / seen


def _one_evaluation(answer: Any, model: nn.Module, batches: list[Batch], training: bool) -> dict[str, Any]:
    start, model, given = copy.deepcopy(model), copy.deepcopy(model), copy.deepcopy(batches)
    for each in (start, model):
        each.train(training)
        for parameter in each.parameters():
            parameter.grad = torch.full_like(parameter, 0.5)
        next(each.parameters()).requires_grad_(False)  # one is frozen, and stays so
    passes = Passes(model)
    with torch.enable_grad():
        returned = call(answer, model, given, may_change=True)
        changed_things = probes.changes(model, start, given, batches)
    loss, share = returned if isinstance(returned, tuple | list) and len(returned) == 2 else (None, None)
    return {
        CHANGED: changed_things,
        "The number of passes in train mode": sum(seen["mode"] != "eval" for seen in passes),
        "The number of recorded graphs": sum(seen["graph"] for seen in passes),
        "Your loss": loss,
        "Your accuracy": share,
        "returned": returned,
    }


def _evaluation(ask: Callable, model: nn.Module, batches: list[Batch], training: bool) -> dict[str, Any]:
    """What the probe saw, and the first number that is wrong."""
    seen = ask.observe(_one_evaluation, model, batches, training)
    means, _, sizes = _means(model, batches)
    loss = plain_number(seen["Your loss"]) or 0.0
    loss_is_right = np.isclose(loss, np.dot(means, sizes) / sum(sizes), rtol=1e-4, atol=1e-5)
    return seen | {"number": "accuracy" if loss_is_right else "loss"}


def _follows(*rules: Callable[[list[float], list[int]], float]) -> Callable:
    """A `when`: the number follows one of these rules, functions of the batches' means and sizes."""

    def when(yours, expected, model, batches, training):
        *means, sizes = _means(model, batches)
        of_this = means[yours["number"] == "accuracy"]
        value = plain_number(yours[f"Your {yours['number']}"])
        return any(np.isclose(value, rule(of_this, sizes), rtol=1e-4, atol=1e-5) for rule in rules)

    return when


@torch.inference_mode()
def _all_at_once(model, batches):
    mode = model.training
    logits, labels = torch.cat([model.eval()(images) for images, _ in batches]), torch.cat([y for _, y in batches])
    model.train(mode)
    return [F.cross_entropy(logits, labels).item(), np.mean((logits.argmax(1) == labels).numpy())]


exercise(
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
    spec=Spec(
        draw=_before_evaluations,
        solution=_evaluate,
        measure=_evaluation,
        mistakes=[
            *side_effects(_evaluate, lambda model, batches: batches.pop()),
            r"""
            model.eval() → pass || model.training = False
                The images went through the model in train mode: batch norm used and changed its statistics.
                look: `model.eval()` before the loop: it reaches every layer
                when: yours["The number of passes in train mode"]
            torch.no_grad() → torch.enable_grad()
                PyTorch recorded a graph for each batch that no backward pass will use: wasted memory and time.
                look: `with torch.no_grad():` around the loop
                when: yours["The number of recorded graphs"]
            then(_evaluate, lambda model, batches: nn.init.zeros_(model[1].weight))
                The model has different weights after your evaluation: measuring must not train.
                look: `optimizer.step()`, or anything that changes weights in place
                when: "weights" in yours[CHANGED]
            then(_evaluate, lambda model, batches: model.zero_grad())
                Your function changed the gradients of the parameters. It should leave the model as it was.
                look: `zero_grad`, `p.grad = None`: an evaluation needs neither
                when: "gradients" in yours[CHANGED]
            model.train(was_training) → pass || model.train() || model.training = was_training
            was_training = model.training\n    model.eval() → model.eval()\n    was_training = model.training
                The model, or a part of it, is not in its old mode afterward, so what runs next would run in the wrong
                one.
                look: keep `model.training` before you call `model.eval()`, which sets it to False. After the loop, pass
                    it to `model.train(…)`, which reaches every layer; `model.training = …` sets one flag only
                when: "modes" in yours[CHANGED]
            lambda *given: _evaluate(*given)[0]
            lambda *given: [*_evaluate(*given), 1]
                Your function should return two numbers, (loss, accuracy); it returned {yours[returned]}.
                when: not isinstance(yours["returned"], tuple | list) or len(yours["returned"]) != 2
            lambda *given: tuple(map(torch.tensor, _evaluate(*given)))
                Your numbers are tensors: return two Python numbers.
                look: `.item()` takes the number out
                when: any(isinstance(part, Tensor) for part in yours["returned"])
            lambda *given: _evaluate(*given)[::-1]
                The two numbers are swapped: return (loss, accuracy).
            model(images) → model(images).softmax(dim=1)
                There is a softmax before the cross-entropy, which has one inside.
                look: give the logits to `F.cross_entropy` as they are
            right / seen → 100 * right / seen
                Your accuracy is in percent; the question is for a share from 0 to 1.
            == labels → != labels
                Your accuracy is the share of wrong answers.
            * len(labels) → && loss_sum / seen → loss_sum / len(batches)
            .sum().item() → .float().mean().item() && right / seen → right / len(batches)
                Your {yours[number]} is the mean of the batches' means: the short last batch counts as much as any.
                look: weight each batch by `len(labels)`, divide once at the end
                when: _follows(lambda means, sizes: sum(means) / len(means))
            loss_sum / seen → loss_sum / (len(batches) * len(batches[0][1]))
            right / seen → right / (len(batches) * len(batches[0][1]))
                You divide by the number of batches times the size of the first one, but the last batch is shorter.
                look: add up `len(labels)` in the loop
                when: _follows(lambda means, sizes: np.dot(means, sizes) / (len(sizes) * sizes[0]))
            in batches → in batches[:-1]
                Your {yours[number]} leaves out the last batch, the short one.
                look: the end of the loop
                when: _follows(lambda means, sizes: np.dot(means[:-1], sizes[:-1]) / sum(sizes[:-1]))
            loss_sum += → loss_sum = && loss_sum / seen → loss_sum / len(labels)
            seen += len(labels) → seen += len(labels); break
                Your {yours[number]} is that of one batch alone, the first or the last.
                look: add up inside the loop, with `+=`; is there a `return` in it?
                when: _follows(lambda means, sizes: means[0], lambda means, sizes: means[-1])
            * len(labels) →
            .sum().item() → .float().mean().item()
                Your {yours[number]} is the sum of the batches' means, divided by the number of images.
                look: multiply each mean by `len(labels)`
                when: _follows(lambda means, sizes: sum(means) / sum(sizes))
            loss_sum / seen → loss_sum || loss_sum / len(batches)
            right / seen → right || right / len(batches)
                Your {yours[number]} is the sum over all images, undivided or divided by the number of batches. Divide
                it by the number of images.
                when: _follows(np.dot, lambda means, sizes: np.dot(means, sizes) / len(sizes))
            * len(labels) → && loss_sum / seen → loss_sum
                Your {yours[number]} adds up the means of the batches and never divides.
                when: _follows(lambda means, sizes: sum(means))
            """,
        ],
        also_right=[
            _all_at_once,
            lambda model, batches: changed(_evaluate, ("no_grad", "enable_grad"))(
                copy.deepcopy(model).requires_grad_(False), batches
            ),
        ],
    ),
)


# ---------------------------------------------------------------------------------------------------------------------

LARGE = 20  # images of a training batch; all validation batches together have fewer


def _before_training(new: Inputs) -> list[tuple]:
    (height, width), classes = new.sizes(2, 3, 5), new.size(3, 5)
    while True:
        model = network(new, height * width, classes, norm=True)
        training = _batches(new, [LARGE] * 4, height, width, classes)
        validation = _batches(new, new.sizes(2, 4, 9), height, width, classes)
        optimizer, epochs = torch.optim.SGD((right := copy.deepcopy(model)).parameters(), lr=0.3), new.size(2, 3)
        accuracies = _repaired(right, training, validation, optimizer, epochs)[1]
        if len({*accuracies}) == epochs and 0 not in accuracies:  # a count that runs on shows
            return [(model, training, validation, 0.3, epochs)]


def _repaired(model, training_batches, validation_batches, optimizer, epochs):
    losses, accuracies = [], []
    for _ in range(epochs):
        model.train()
        for images, labels in training_batches:
            loss = F.cross_entropy(model(images), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        model.eval()
        right, count = 0, 0
        with torch.no_grad():
            for images, labels in validation_batches:
                right += (model(images).argmax(dim=1) == labels).sum().item()
                count += len(labels)
        accuracies.append(right / count)
    return losses, accuracies


def _one_training(
    answer: Any, model: nn.Module, training: list[Batch], validation: list[Batch], lr: float, epochs: int
) -> dict[str, Any]:
    start, model, given = model, *copy.deepcopy((model, [training, validation]))
    optimizer = WatchedSGD(model, lr)
    with torch.enable_grad():
        returned = call(answer, model, *given, optimizer, epochs, may_change=True)
        changed_things = probes.changes(model, start, given[0] + given[1], training + validation)
    pair = isinstance(returned, tuple | list) and [isinstance(each, tuple | list) for each in returned] == [True, True]
    losses, accuracies = returned if pair else ([], [])
    return {
        CHANGED: sorted({*FORBIDDEN} & {*changed_things}),
        "The number of losses": len(losses),
        "The number of accuracies": len(accuracies),
        "The trained model (all its weights in one row)": weights(model),
        "The row of losses that you return": _row(losses),
        "The row of accuracies that you return": _row(accuracies),
        "tensors": any(isinstance(value, Tensor) for value in [*losses, *accuracies]),
        "lengths": [len(losses), len(accuracies)],
        "passes": [dict(seen) for seen in optimizer.passes],
        "returned": None if pair else returned,
    } | watch_training(optimizer, model, start)


def _row(values: Sequence[Any]) -> Any:
    numbers = [plain_number(value) for value in values]
    return list(values) if None in numbers else torch.tensor(numbers, dtype=torch.float64)


def _with_faults(
    ask: Callable, model: nn.Module, training: list[Batch], validation: list[Batch], lr: float, epochs: int
) -> dict[str, Any]:
    """What was seen of a training, and which of the five faults are left in it."""
    seen = ask.observe(_one_training, model, training, validation, lr, epochs)
    images, labels = training[0]
    with torch.no_grad():
        softmax = F.cross_entropy(copy.deepcopy(model).train()(images).softmax(1), labels).item()
    modes = [each["mode"] for each in seen["passes"] if each["images"] == LARGE and each["graph"]]
    quiet = [each for each in seen["passes"] if each["images"] < LARGE]
    losses = seen["The row of losses that you return"]
    faults = {
        "eval mode": "eval" in modes,
        "zero_grad": "backward onto old gradients" in seen["events"],
        "softmax": isinstance(losses, Tensor) and len(losses) and abs(losses[0] - softmax) < 1e-4,
        "tensors kept": seen["tensors"],
        "validation with graph": any(each["graph"] for each in quiet),
        "validation in train mode": any(each["mode"] != "eval" for each in quiet),
    }
    found = [name for name, there in faults.items() if there]
    rest = (
        f" Faults that remain after this one: {len(found) - 1}."
        if len(found) > 1
        else " No fault remains after this one."
    )
    return seen | {"Faults": found, "rest": rest}


def _train_then_measure(model, training_batches, validation_batches, optimizer, epochs):
    losses, accuracies = [], []
    for _ in range(epochs):
        losses += [_step(model, images, labels, optimizer) for images, labels in training_batches]
        accuracies += [_evaluate(model, validation_batches)[1]]
    return losses, accuracies


exercise(
    "repair_training",
    seconds=SLOW_START,
    title="Repair a loop",
    minutes=8,
    difficulty=4,
    points=3,
    takeaway="None of the five faults raises an error. Check every loop for mode, zero_grad, logits, item and no_grad.",
    hints=(
        "Go through the loop with five questions: which mode? whose gradients? what does cross_entropy want? "
        "what is kept in the lists? where do you need a graph?",
        "The first epoch trains in train mode. Does the second? Who clears the gradients for the second batch?",
        "`model.train()` and `optimizer.zero_grad()` move inside; no softmax; `losses.append(loss.item())`; "
        "`with torch.no_grad():` around the validation loop.",
    ),
    spec=Spec(
        draw=_before_training,
        solution=_repaired,
        measure=_with_faults,
        mistakes=[
            r"""
            lambda *given: _repaired(*given)[0]
            lambda *given: [row[-1] for row in _repaired(*given)]
                Your function should return two lists, (losses, accuracies); it returned {yours[returned]}.
                when: yours["returned"] is not None
            lambda *given: _repaired(*given)[::-1]
                The two lists are swapped: return (losses, accuracies).
                when: yours["lengths"] == expected["lengths"][::-1]
            accuracies.append(right / count) → accuracies.append(right / count)\n        return losses, accuracies
            for _ in range(epochs): → for _ in range(epochs):\n        losses, accuracies = [], []
                Your lists hold one epoch, but they should hold {epochs}.
                look: `for epoch in range(epochs)`; a `return` inside the loop; lists made again in each epoch
                when: yours["lengths"] == [length / epochs for length in expected["lengths"]]
            \n            losses.append → \n        losses.append
            \n        accuracies.append(right / count) → \n                accuracies.append(right / count)
            range(epochs) → range(epochs + 1)
                The lists have the wrong lengths, {yours[The number of losses]} (losses) and {yours[The number of
                accuracies]} (accuracies). Return {expected[The number of losses]} losses, one for each batch of each
                epoch, and {epochs} accuracies.
                look: in which loop is each `append`?
                when: yours["lengths"] != expected["lengths"]
            """,
            *side_effects(_repaired, lambda model, training, *given: training.pop()),
            r"""
            in validation_batches → in training_batches
                The validation batches never went through the model: your accuracy comes from images it learned from.
                look: the second loop over batches
                when: all(seen["images"] >= LARGE for seen in yours["passes"])
            model.train() → pass && losses, accuracies = [], [] → losses, accuracies = [], []; model.train()
                    && optimizer.zero_grad() → pass && loss.item() → loss && torch.no_grad() → torch.enable_grad()
                    && F.cross_entropy(model(images), labels) → F.cross_entropy(model(images).softmax(dim=1), labels)
            model.train() → pass && losses, accuracies = [], [] → losses, accuracies = [], []; model.train()
            model.train() → model.eval()
                The model trains in eval mode, at least from the second epoch on: the validation left it
                there.{yours[rest]}
                look: `model.train()` at the start of each epoch
                when: yours["Faults"][:1] == ["eval mode"]
            optimizer.zero_grad() → pass && torch.no_grad() → torch.enable_grad()
            optimizer.zero_grad() → pass
                The gradients of batches add up: they are not cleared between the steps of an epoch.{yours[rest]}
                look: `optimizer.zero_grad()` belongs in the inner loop
                when: yours["Faults"][:1] == ["zero_grad"]
            F.cross_entropy(model(images), labels) → F.cross_entropy(model(images).softmax(dim=1), labels)
                There is still a softmax before the cross-entropy, which has one inside.{yours[rest]}
                when: yours["Faults"][:1] == ["softmax"]
            loss.item() → loss || loss.detach()
            .sum().item() → .sum()
                Your lists hold tensors; the exercise asks for Python floats.{yours[rest]}
                look: `.item()` takes the number out of a tensor. (A loss that keeps its graph keeps it in memory, too.)
                when: yours["Faults"][:1] == ["tensors kept"]
            torch.no_grad() → torch.enable_grad()
                The validation still records a graph, although there is no backward.{yours[rest]}
                look: `with torch.no_grad():` around the validation loop
                when: yours["Faults"][:1] == ["validation with graph"]
            model.eval() → pass
                The validation runs in train mode: batch norm learns from the validation images.{yours[rest]}
                look: `model.eval()` before the validation loop
                when: yours["Faults"][:1] == ["validation in train mode"]
            """,
            *wrong_order(_repaired)[:-1],
            *wrong_loss(_repaired)[1:],
            r"""
            right, count = 0, 0 → pass && for _ in range(epochs): → right, count = 0, 0\n    for _ in range(epochs):
                From the second epoch on your accuracy still counts the validation of the epochs before.
                look: `right, count = 0, 0` belongs in the loop over the epochs
            .sum().item() → .float().mean().item() / len(validation_batches) && right / count → right
                Your accuracy is the mean of the batches' accuracies: a small batch counts as much as a large one.
                look: count the right answers and the images of all batches, divide once
            right / count → right || right / len(validation_batches)
                Your accuracy is a count, perhaps divided by the number of batches: divide by the number of images.
            right / count → 100 * right / count
                Your accuracy is in percent; return a share from 0 to 1.
            loss.item() → loss.item() * len(labels) || loss.item() / len(labels)
                You multiply or divide your losses by the batch size: return each as `F.cross_entropy` gives it, a mean.
            """,
        ],
        also_right=[
            _train_then_measure,
            changed(_repaired, ("optimizer.zero_grad()", "pass"), ("r.step()", "r.step(); model.zero_grad()")),
        ],
    ),
)


# ---------------------------------------------------------------------------------------------------------------------


def _before_momentum(new: Inputs) -> list[tuple]:
    """A momentum of 0.9 would hide a constant, 0.5 would hide 1 − momentum. A learning rate that changes tells where in
    the formula it is. The second parameter is frozen, with others behind it; the third has no gradient in the last
    step, and that of the fourth is zero in the second."""
    start = [new.randn(*shape) for shape in (new.sizes(2, 2, 5), *((new.size(1, 6),) for _ in range(3)))]
    rows = [[new.randn(*value.shape) for value in start] for _ in range(3)]
    rows[1][3].zero_()
    gradients = [[None if i == 1 or (i == 2 and row is rows[-1]) else row[i] for i in range(4)] for row in rows]
    return [(start, gradients, [0.5, 0.1, 0.3], new.pick((0.6, 0.7, 0.8)))]


def _momentum(parameters, velocities, learning_rate, momentum):
    with torch.no_grad():
        for p, v in zip(parameters, velocities, strict=True):
            if p.grad is not None:
                v.mul_(momentum).add_(p.grad)
                p.sub_(learning_rate * v)


def _momentum_steps(
    answer: Any, start: list[Tensor], gradients: list[list[Tensor | None]], rates: list[float], momentum: float
) -> dict[str, Any]:
    parameters = [nn.Parameter(value.clone()) for value in start]
    velocities = [torch.zeros_like(value) for value in start]
    own, found, forms = list(parameters), set(), [(value.shape, value.dtype) for value in start]
    for rate, row in zip(rates, gradients, strict=True):
        before = own[2].detach().clone()
        for parameter, gradient in zip(own, row, strict=True):
            parameter.grad = None if gradient is None else gradient.clone()
        with torch.enable_grad():
            call(answer, parameters, velocities, rate, momentum, may_change=True, may_return_none=True)
            found |= set() if torch.is_grad_enabled() else {"requires_grad"}
        for kept in (parameters, velocities):
            if [(getattr(v, "shape", None), getattr(v, "dtype", None)) for v in kept] != forms:
                return {CHANGED: ["lists"]}
        pairs = [(p.grad, gradient) for p, gradient in zip(own, row, strict=True) if gradient is not None]
        changes = {
            "parameters": any(a is not b for a, b in zip(own, parameters, strict=True)),
            "requires_grad": not all(parameter.requires_grad for parameter in own),
            "gradients": any(now is None or not torch.equal(now, gradient) for now, gradient in pairs),
            "graph": any(v.requires_grad for v in velocities),
        }
        found |= {what for what, is_changed in changes.items() if is_changed}
    now, speed = ([value.detach() for value in values] for values in (own, velocities))
    return {
        CHANGED: sorted(found),
        "The row of all parameters after three of your steps": torch.cat([now[0].flatten(), now[3]]),
        "How far the parameters moved whose grad is None": torch.cat([now[1] - start[1], now[2] - before]),
        "The row of all velocities after three of your steps": torch.cat([speed[0].flatten(), speed[3]]),
    }


def _stuck(yours: dict, start: list[Tensor], index: int) -> bool:
    row = yours["The row of all parameters after three of your steps"].split([start[0].numel(), len(start[3])])
    return torch.equal(row[index], start[3 * index].flatten())


exercise(
    "momentum_step",
    seconds=SLOW_START,
    title="Stretch: momentum",
    minutes=10,
    difficulty=4,
    points=2,
    takeaway="You have written `torch.optim.SGD(momentum=...)`: an optimizer is just a loop over the parameters.",
    hints=(
        "Loop over parameters and velocities together. First the velocity, then the parameter, both in place.",
        "Autograd forbids changing a parameter in place while it records: `with torch.no_grad():`. "
        "Skip a parameter whose `grad` is None.",
        "`v.mul_(momentum).add_(p.grad)`, then `p.sub_(learning_rate * v)`.",
    ),
    spec=Spec(
        draw=_before_momentum,
        solution=_momentum,
        probe=_momentum_steps,
        look="v ← momentum · v + gradient, then p ← p − learning rate · v",
        mistakes=r"""
            v.mul_(momentum).add_(p.grad) → v = momentum * v + p.grad || v.copy_(p.grad)
                The velocity forgets everything: this is plain SGD without momentum.
                look: `v = …` gives a new tensor the name v, and the list keeps the old one; `v.mul_(…)` changes it
            add_(p.grad) → add_(p.grad, alpha=1 - momentum)
                You mixed in only a part of the gradient, (1 − momentum). PyTorch's SGD adds all of it.
            mul_(momentum) → mul_(1 - momentum)
                Your velocity keeps 1 − momentum of the old one; it should keep momentum times the old one.
            p.sub_ → p.add_
            add_(p.grad) → sub_(p.grad)
                Your step goes uphill: add the gradient to the velocity, and subtract the velocity from the parameter.
            v.mul_(momentum).add_(p.grad) → v.add_(p.grad).mul_(momentum)
                Your momentum multiplies the gradient, too: multiply only the old velocity.
            v.mul_(momentum).add_(p.grad) → v.add_(p.grad)
                The momentum is missing from your velocity: it adds up all gradients in full.
            learning_rate * v → v
                The learning rate is missing: the step is learning rate · velocity.
            p.sub_(learning_rate * v) → p.sub_(learning_rate * (p.grad + momentum * v))
                This is Nesterov's momentum, gradient + momentum · velocity. Here the step follows the velocity.
            p.sub_(learning_rate * v) → p.sub_(learning_rate * p.grad)
                Your step follows the gradient, not the velocity.
            mul_(momentum) → mul_(0.9)
                You use a fixed momentum of 0.9; take the argument `momentum`.
            add_(p.grad) → add_(learning_rate * p.grad)
            add_(p.grad) → add_(learning_rate * p.grad) && p.sub_(learning_rate * v) → p.sub_(v)
            add_(p.grad) → sub_(learning_rate * p.grad) && p.sub_(learning_rate * v) → p.add_(v)
                The learning rate is inside your velocity. It belongs in the step alone, because the rate may change.
            v.mul_(momentum).add_(p.grad) → pass
                    && p.sub_(learning_rate * v) → p.sub_(learning_rate * v); v.mul_(momentum).add_(p.grad)
                Your step uses the velocity from before. First update the velocity, then take the step.
            lambda parameters, *given: parameters.clear()
            p.sub_(learning_rate * v) → p.data = p.data.double()
                The lists should still hold tensors of the same shapes and dtypes as before.
                when: "lists" in yours[CHANGED]
            for p, v in zip(parameters, velocities, strict=True)
                    → for i, (p, v) in enumerate(zip(parameters, velocities))
                    && p.sub_(learning_rate * v) → parameters[i] = p - learning_rate * v
                You put new tensors into the list of parameters: the model still has the old ones, unchanged.
                look: methods that work in place: `p.sub_(...)`, `p -= ...`
                when: "parameters" in yours[CHANGED]
            lambda parameters, *given: _momentum([p.requires_grad_(False) for p in parameters], *given)
            lambda *given: _momentum(*given) or (torch.set_grad_enabled(False) and None)
                Your step left gradients switched off, everywhere or for these parameters: no `backward()` would reach
                them again.
                look: `with torch.no_grad():` switches them back on by itself
                when: "requires_grad" in yours[CHANGED]
            p.sub_(learning_rate * v) → p.sub_(learning_rate * v); p.grad = None
            v.mul_(momentum).add_(p.grad) → v.copy_(p.grad.add_(v, alpha=momentum))
                Your step changed or cleared the gradients. That is what `zero_grad` is for.
                look: what works in place on `p.grad`
                when: "gradients" in yours[CHANGED]
            torch.no_grad() → torch.enable_grad()
                Autograd is recording, and it forbids changing a parameter in place.
                look: `with torch.no_grad():`
                when: says(yours, "in-place operation")
            p.grad is not None → True
                A parameter's grad is None, and you used it as a tensor: skip that parameter, and leave it as it is.
                when: says(yours, "NoneType")
            = _momentum(parameters, [*velocities[1:], velocities[0]], learning_rate, momentum)
                A parameter met the velocity of another one: {yours.message}
                look: `zip` of the whole lists, in their order; a parameter whose grad is None is skipped inside the
                    loop
                when: says(yours, "broadcast", "size of tensor")
            p.sub_(learning_rate * v) → p = p - learning_rate * v
            lambda *given: 1
                The parameters are what they were before your steps.
                look: a step in place, `p.sub_(...)` or `p -= ...`: `p = p - …` only gives a new tensor the name p
                when: _stuck(yours, start, 0) and _stuck(yours, start, 1)
            p.grad is not None → p.grad is not None and p.grad.any()
                You skip a parameter whose gradient is zero. It still moves, with what is left of its velocity.
                look: `if parameter.grad is None`, and nothing else, is a reason to skip
            if p.grad is not None: → if p.grad is None:\n                break\n            else:
                A parameter after one whose grad is None did not move: skip that one, and go on with the others.
                look: `continue`, not `break` or `return`
                when: _stuck(yours, start, 1)
            v.mul_(momentum).add_(p.grad) → v.mul_(momentum).add_(torch.zeros_like(p) if p.grad is None else p.grad)
                    && p.grad is not None → True
                A parameter whose grad is None moved: skip it, and leave its velocity as it is.
                when: yours["How far the parameters moved whose grad is None"].any()
        """,
        also_right=[
            changed(
                _momentum,
                ("for p, v in zip(parameters, velocities, strict=True)", "for i, p in enumerate(parameters)"),
                ("v.mul_(momentum).add_(p.grad)", "v = velocities[i] = momentum * velocities[i] + p.grad"),
                ("p.sub_(learning_rate * v)", "p.data -= learning_rate * v"),
            ),
        ],
    ),
)
