"""An epoch in small pieces: the steps of whole batches, in a fraction of the memory."""

import copy
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from labcheck.authoring import Exercise, Incorrect, Inputs, near, observe, same, wrong_if
from labcheck.probes import SLOW_START, Batch, graphs_at_once, network, weights
from torchcourse import simgpu
from torchcourse_labs.cpu_to_gpu._shared import as_numbers, busiest_line, device_work


def draw(rng: Inputs) -> tuple[nn.Module, list[Tensor], list[Batch], int]:
    """A model, its old gradients, and batches of many rows and few, so that `chunk(rows)` is not `split(rows)`."""
    rows, pixels, classes = rng.size(3, 4), rng.size(5, 9), rng.size(3, 5)
    sizes = [rows * rows + rng.size(1, rows - 1), 2 * rows + 1, rows * (rows + 1), rows - 1, 3 * rows - 1]
    model = network(rng, pixels, classes)
    old = [rng.randn(*parameter.shape) for parameter in model.parameters()]
    return model, old, [(rng.randn(size, pixels), rng.ints(0, classes, (size,))) for size in sizes], rows


def share_of_rows(x: Tensor, images: Tensor, rows: int) -> float:
    return len(x) / len(images)


def solution(
    model: nn.Module,
    batches: list[Batch],
    optimizer: torch.optim.Optimizer,
    device: torch.device,
    rows: int,
    share: Callable = share_of_rows,  # of a piece in its batch
) -> float:
    total, seen = torch.zeros((), device=device), 0
    for images, labels in batches:
        optimizer.zero_grad()
        for x, y in zip(images.split(rows), labels.split(rows), strict=True):
            loss = F.cross_entropy(model(x.to(device)), y.to(device))
            (loss * share(x, images, rows)).backward()
            total += loss.detach() * len(x)
        optimizer.step()
        seen += len(images)
    return total.item() / seen


def start(model: nn.Module, old: list[Tensor], device: torch.device) -> tuple[nn.Module, torch.optim.Optimizer]:
    """A copy of the model, with old gradients, and its optimizer."""
    model = copy.deepcopy(model).to(device)
    for parameter, gradient in zip(model.parameters(), old, strict=True):
        parameter.grad = gradient.to(device, copy=True)
    return model, torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.5)


def accumulated(answer: Callable, given: nn.Module, old: list[Tensor], batches: list[Batch], rows: int) -> dict:
    """A probe: loss and weights after the epoch, and what model, optimizer and device got to do."""
    gpu, came, steps = simgpu.accelerator(), [], []
    model, optimizer = start(given, old, gpu)
    model[0].register_forward_pre_hook(lambda _, inputs: came.append(len(inputs[0])))
    optimizer.register_step_post_hook(lambda *_: steps.append(1))
    graphs = graphs_at_once(model)
    loss, work = device_work(answer, model, copy.deepcopy(batches), optimizer, gpu, rows)
    seen = {"loss": as_numbers(loss), "weights": weights(model), "steps": len(steps), "rows": came, "graphs": graphs()}
    return seen | {"to device": work["to device"], "waits": work["synchronize"]}


def judge(answer: Any, rng: Inputs) -> None:
    model, old, batches, rows = draw(rng)
    seen = observe(answer, accumulated, model, old, batches, rows)
    judge_pieces(seen["rows"], batches, rows)
    judge_values(seen, model, old, batches, rows)
    large = {images.nbytes for images, _ in batches if len(images) > rows}
    whole = [event for event in seen["to device"] if event[0] in large]
    wrong_if(
        whole,
        "whole_batch",
        f"A whole batch travels to the device, {whole[0][0] if whole else 0:,} bytes, and it does not fit.",
        look=f"{busiest_line(whole)}; first split, then `.to(device)`",
    )
    wrong_if(
        seen["graphs"] > 1,
        "graphs",
        f"The graphs of {seen['graphs']} pieces exist at the same time, and each keeps its activations in memory.",
        look="call `backward()` for each piece before you begin the next one",
    )
    wrong_if(
        len(seen["waits"]) > 1,
        "waits",
        f"Python waits {len(seen['waits'])} times in this epoch; once, at the end, is enough.",
        look=f"{busiest_line(seen['waits'])}; add up `loss.detach()` on the device",
    )


def judge_pieces(came: list[int], batches: list[Batch], rows: int) -> None:
    wrong_if(
        max(came, default=0) > rows,
        "too_large",
        f"A piece is too large for the memory: at most {rows} rows fit, and yours has {max(came, default=0)}.",
        look="`split(rows)` makes pieces of `rows` rows; `chunk(rows)` makes `rows` pieces",
    )
    wrong_if(
        sum(came) != sum(len(images) for images, _ in batches),
        "rows",
        "Each row of each batch should go through the model once.",
        look="the last, short piece of a batch, and everything that calls the model",
        expected=f"{sum(len(images) for images, _ in batches)} rows",
        yours=f"{sum(came)} rows",
    )


def judge_values(seen: dict, model: nn.Module, old: list[Tensor], batches: list[Batch], rows: int) -> None:
    def trained(share: Callable = share_of_rows, cleared: bool = True) -> tuple[float, Tensor]:
        one, optimizer = start(model, old, torch.device("cpu"))
        optimizer.zero_grad = optimizer.zero_grad if cleared else lambda: None
        return solution(one, batches, optimizer, torch.device("cpu"), rows, share), weights(one)

    def trained_like(right: Tensor) -> bool:
        return near(seen["weights"], right, 1e-3, 1e-4)

    wrong_if(
        seen["steps"] != len(batches),
        "steps",
        "The optimizer that you are given should take one step for each batch.",
        look="the indentation of `optimizer.step()`: after the loop over the pieces",
        expected=f"{len(batches)} steps",
        yours=f"{seen['steps']} steps",
    )
    wrong_if(
        trained_like(trained(cleared=False)[1]),
        "not_cleared",
        "The gradients are never cleared: `backward()` adds to those of the batch before, and to old ones.",
        look="`optimizer.zero_grad()` once per batch, before its first piece",
    )
    wrong_if(
        trained_like(trained(lambda *_: 1)[1])
        or trained_like(trained(lambda x, images, _: 1 / -(-len(images) // rows))[1]),
        "not_weighted",
        "Your step is not that of the whole batch: each piece should count by its share of the batch's rows.",
        look="the number that you multiply the loss of a piece by: a short piece counts less",
    )
    loss, expected = trained()
    look = "clear once per batch, weight each piece by its share of the batch's rows, step once per batch"
    same(seen["weights"], expected, "The row of all trained weights", False, 1e-3, 1e-4, look)
    if not isinstance(seen["loss"], Tensor):
        raise Incorrect("Your loss is not a number.", loss, seen["loss"], "`.item()`, once, at the end")
    look = "the mean over all images of the epoch: what do you add up, and what do you divide by?"
    same(seen["loss"], torch.tensor(loss), "The training is right, but your loss", False, 1e-3, 1e-4, look)


exercise = Exercise(
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
    judge=judge,
)
