"""The exercises of chapter 03: back to NumPy, weights that stay, a migrated training, waits that hide.

They run on `simgpu.accelerator()`: the machine's own GPU, or the practice GPU where there is none. The probes below run
where the answer is. They bring models and tensors to the device and report, as plain data, what came of them; what
travels and where Python waits is counted by `probes.device_work`.
"""

import copy
import itertools
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from labcheck import probes
from labcheck.answer import call
from labcheck.inputs import Inputs
from labcheck.probes import SLOW_START, Batch, as_numbers, busiest_line, device_work, network, weights
from labcheck.show import show
from labcheck.verdict import not_none
from torchcourse import simgpu
from torchcourse_labs._spec import Spec, changed, chapter, says  # noqa: F401 - for the tables

CHAPTER = "03_cpu_to_gpu"
EXERCISES = ("to_numpy", "keep_weights", "quiet_evaluation", "choose_batch_size")

exercise = chapter("03_cpu_to_gpu")
CPU, DEVICE = "on the CPU", "on the device"


def _place(where: str) -> torch.device:
    return simgpu.accelerator() if where == DEVICE else torch.device("cpu")


def _where(*tensors: Tensor) -> str:
    """CPU or DEVICE; both, if the tensors are not all in one place."""
    places = {CPU if tensor.device.type == "cpu" else DEVICE for tensor in tensors}
    return " and ".join(sorted(places))


# ---------------------------------------------------------------------------------------------------------------------


def _byte_counts(sizes: list[int], pixels: int, model: nn.Module) -> list[int]:
    """How many bytes travel in a training, by what travels: copies are told apart by them."""
    images = [n * pixels for n in (*{*sizes}, sum(sizes), 1)]
    labels = [8 * n for n in (*{*sizes}, sum(sizes), 1)]
    return [*images, *(4 * n for n in images), *labels, *(parameter.nbytes for parameter in model.parameters())]


def _trainings(new: Inputs) -> list[tuple]:
    (count, epochs), counts = new.pick(((4, 2), (5, 2), (4, 3))), [0, 0]
    while len({*counts}) < len(counts):
        (height, width), classes, (last, size) = new.sizes(2, 3, 6), new.size(3, 5), sorted(new.sizes(2, 4, 11))
        model = network(new, height * width, classes)
        sizes = [size] * (count - 1) + [last]  # the last batch is short
        counts = _byte_counts(sizes, height * width, model)
    return [([(new.images(n, 1, height, width), new.ints(0, classes, (n,))) for n in sizes], epochs, model)]


def _trained(answer: Any, batches: list[Batch], epochs: int, model: nn.Module) -> dict[str, Any]:
    """A probe: losses and weights after a training on the device, and what has traveled for it."""
    gpu, model = simgpu.accelerator(), copy.deepcopy(model)
    before = weights(model)
    losses, work = device_work(answer, model, copy.deepcopy(batches), gpu, epochs)
    numbers, there = as_numbers(losses), work["to device"]
    of = {  # bytes of all images, and so on: of one batch, of all together, of a single image
        "images": {images.nbytes for images, _ in batches} | {sum(images.nbytes for images, _ in batches)},
        "labels": {labels.nbytes for _, labels in batches} | {sum(labels.nbytes for _, labels in batches)},
        "single": {batches[0][0][0].nbytes, 4 * batches[0][0][0].nbytes, 8},
    }
    of["floats"] = {4 * count for count in of["images"]}
    traveled = {what: [event for event in there if event[0] in counts] for what, counts in of.items()}
    others = [event for event in there if event[0] not in of["images"] | of["labels"] | of["floats"]]
    parameters = len([*model.parameters()])  # each travels once
    whole = [event for event in work["to host"] if event[0] > 8]
    waits, steps = work["synchronize"], len(batches) * epochs
    twice = max(traveled["images"], traveled["labels"], key=len)
    faults = {
        "idle": len(work["product"]) < steps and [(0, "the line that computes the loss: where are model and batch?")],
        "floats": traveled["floats"],
        "single": len(traveled["single"]) > len(batches[0][0]) and traveled["single"],
        "twice": len(twice) > steps and twice,
        "others": len(others) > parameters + 2 * epochs + 2 and others,
        "back": len(whole) > epochs and whole,
        "waits": len(waits) > epochs and waits,
    }
    found = next(((name, events) for name, events in faults.items() if events), ("", []))
    return {
        "Model's place": _where(*model.parameters()),
        "Your list of losses": numbers,
        "The row of all trained weights": weights(model),
        "Fault": found[0],
        "times": len(found[1]),
        "line": busiest_line(found[1]) or "the inner loop",
        "bytes": found[1][0][0] if found[1] else 0,
        "right bytes": batches[0][0].nbytes,
        "batches": steps,
        "on the device": len(work["product"]) > 0,
        "learned": not torch.equal(weights(model), before),
        "losses": [round(float(loss), 4) for loss in numbers.flatten()] if isinstance(numbers, Tensor) else numbers,
    }


def _train(model, batches, device, epochs):
    model.to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    losses = []
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


def _sent_in_one_piece(model, batches, device, epochs):
    sizes = [len(labels) for _, labels in batches]
    images, labels = (torch.cat(parts).to(device).split(sizes) for parts in zip(*batches, strict=True))
    return _train(model, list(zip(images, labels, strict=True)), device, epochs)


exercise(
    "migrate_training",
    seconds=SLOW_START,
    title="Move a training run",
    minutes=12,
    difficulty=3,
    points=3,
    takeaway="Model before the loop, bytes once per batch, one reading per epoch: that is the whole migration.",
    hints=(
        "Three things have to be on the device: the model (once), the images and the labels (once per batch). "
        "And one thing has to come back: a number, once per epoch.",
        "`model.to(device)` belongs before the loop. `images.to(device)` comes before `.float()`, so that bytes "
        "travel. `loss.item()` waits in each step: add up `loss.detach()` instead.",
        "`total = torch.zeros((), device=device)`, in the loop `total += loss.detach()`, "
        "after the loop `losses.append(total.item() / len(batches))`.",
    ),
    spec=Spec(
        draw=_trainings,
        solution=_train,
        measure=lambda ask, batches, epochs, model: ask.observe(_trained, batches, epochs, model),
        rtol=1e-3,
        atol=1e-4,
        look="keep optimizer, learning rate, order of the lines, and the mean over the batches as they are",
        mistakes=r"""
            return losses → model.cpu(); return losses
            model.to(device) → model = copy.deepcopy(model).to(device)
                The device did work, but the model you were given is not there: you trained a copy, or moved it back.
                look: `model.to(device)` moves the model itself, and there it stays
                when: yours["Model's place"] != DEVICE and yours["on the device"]
            images, labels = images.to(device), labels.to(device) → images.to(device); labels.to(device)
            images, labels = images.to(device), labels.to(device) → images = images.to(device)
                The images or the labels are still on the CPU where they meet what is on the device.
                look: for a tensor, `.to(device)` returns a copy and changes nothing: `images = images.to(device)`. Only
                    a model moves in place
                when: says(yours, "mat1 is on cpu", "target is on cpu", "got target")
            model.to(device) → pass
                The model is still on the CPU when it meets data on the device.
                look: `model.to(device)` before the loop
                when: says(yours, "other tensors on cpu")
            = _train(model, batches, "cpu", epochs)
            = [0.5] * epochs
                The model stayed on the CPU, and so did the work.
                look: `model.to(device)` before the loop
                when: yours["Model's place"] != DEVICE
            total.item() → total
            lambda *given: torch.tensor(_train(*given))
                Your losses should be a list of Python numbers; they are {yours[losses]}.
                look: `.item()` or `.tolist()`, after the loop over the batches
                when: isinstance(yours["Your list of losses"], str)
            losses.append(total.item() / len(batches)) → pass && total += loss.detach() → losses.append(loss.item())
                You return one loss for each batch ({yours[batches]}); it should be one for each epoch ({epochs}).
                when: yours["Your list of losses"].shape == (epochs * len(batches),)
            lambda *given: _train(*given)[-1]
            range(epochs) → range(1)
                You return {yours[losses]}; it should be a list with one loss for each of the {epochs} epochs.
                look: what is appended, and where
                when: yours["Your list of losses"].shape != expected["Your list of losses"].shape
            optimizer.step() → pass || optimizer.zero_grad(); optimizer.step()
                Nothing was learned: the model's weights have not changed.
                look: `backward`, then the optimizer's `step`, for this model; `zero_grad` not between the two
                when: not yours["learned"]
            images.float() / 255 → images.float()
                Your images are not scaled to 0..1: their values go up to 255.
                look: `/ 255`, on the device
            , momentum=0.9 →
            lr=0.1 → lr=0.01
                Your optimizer is not the script's, which has a learning rate of 0.1 and a momentum of 0.9.
            optimizer.zero_grad() → pass
                The gradients are never cleared, so each step follows the sum of all gradients up to then.
                look: `optimizer.zero_grad()` for every batch
            optimizer.zero_grad()\n            loss.backward()\n            optimizer.step()
                    → optimizer.step()\n            optimizer.zero_grad()\n            loss.backward()
                The step comes before `backward`, so it uses the gradients of the batch before.
                look: `zero_grad`, `backward`, `step`: in this order
            total = → optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)\n        total =
                Each epoch begins with a new optimizer, which has lost the momentum of the epochs before.
                look: one optimizer, before the loop over the epochs
            images.float() / 255) → images.float() / 255).softmax(1)
                There is a softmax before the loss, and `cross_entropy` already includes one.
            / len(batches) →
                Your losses are sums over the batches: divide each by the number of batches.
            loss.detach() → loss.detach() * len(labels) && len(batches) → sum(len(labels) for _, labels in batches)
                Your losses are means over the images; the script takes the mean over the batches, in which the short
                last batch counts as much as the others.
                look: what you add up, and what you divide by
            for _ in range(epochs):\n        total = torch.zeros((), device=device)
                    → total = torch.zeros((), device=device)\n    for _ in range(epochs):
                Your sum starts at 0 only once, so each epoch's loss contains the epochs before it.
                look: where the sum is set to 0
            total += loss.detach() → total = loss.detach() && / len(batches) →
                You return the loss of the last batch; the loss of an epoch is the mean over its batches.
            lr=0.1 → lr=0.3
            in batches: → in batches[::-1]:
            / 255 → / 127.5 - 1
                Your losses are not those of the script: yours are {yours[losses]}, and they should be
                {expected[losses]}. Something besides the device has changed.
                look: keep the optimizer, the learning rate, the order of lines and batches, and the mean over batches
                when: not torch.allclose(yours["Your list of losses"], expected["Your list of losses"], rtol=1e-3,
                    atol=1e-4)
            return losses → optimizer.step()\n    return losses
                Your losses come close to those of the script, but the model's weights after the training do not.
                look: is every number of the script still the same, and does nothing happen after the last loss?
                when: not yours["Fault"]
            model.to(device) → pass && , device=device → && images.to(device), labels.to(device) → images, labels
                    && return losses → model.to(device); return losses
                The model is on the device, but the training was not: there were fewer than {yours[batches]} matrix
                products on the device, one for each batch.
                look: move the model before the first batch, and each batch before its forward pass
                when: yours["Fault"] == "idle"
            images.float() / 255 → images && images.to(device) → (images.float() / 255).to(device)
            images.to(device) → images.to(device, torch.float32)
                The images travel as floats, four times the bytes: a copy takes {yours[bytes]:,} bytes, and
                {yours[right bytes]:,} are enough.
                look: {yours[line]}; first `.to(device)`, then `.float()`
                when: yours["Fault"] == "floats"
            images.to(device), → torch.stack([image.to(device) for image in images]),
            labels.to(device) → torch.stack([label.to(device) for label in labels])
                The images or labels travel one by one, and every copy has to be started: there were {yours[times]} such
                copies.
                look: {yours[line]}; send the whole batch
                when: yours["Fault"] == "single"
            images.to(device), → images.to(device) + 0 * images.to(device),
            labels.to(device) → labels.to(device) * (labels.to(device) >= 0)
                Some images or labels travel more than once: there are {yours[times]} such copies for {yours[batches]}
                batches.
                look: {yours[line]}
                when: yours["Fault"] == "twice"
            loss.backward() → torch.ones(3).to(device)\n            loss.backward()
                Something besides images and labels travels for each batch: there were {yours[times]} other copies,
                those of the model's parameters included.
                look: {yours[line]}; make it on the device, or send it once before the loop
                when: yours["Fault"] == "others"
            loss.backward() → images.cpu()\n            loss.backward()
                Whole tensors come back to the CPU, although a number for each epoch is enough.
                look: {yours[line]}
                when: yours["Fault"] == "back"
            loss.detach() → loss.item()
            loss.backward() → torch.accelerator.synchronize(); loss.backward()
                Python waits for the device {yours[times]} times in {epochs} epochs; once per epoch is enough.
                look: {yours[line]}; add up `loss.detach()` on the device, and read the sum after the inner loop
                when: yours["Fault"] == "waits"
        """,
        also_right=[
            _sent_in_one_piece,
            changed(_train, ("total.item()", "total"), ("return losses", "return tuple(torch.stack(losses).tolist())")),
        ],
    ),
)


# ---------------------------------------------------------------------------------------------------------------------


def _epochs(new: Inputs) -> list[tuple]:
    """Batches of many rows and of few, so that `chunk(rows)` cannot be taken for `split(rows)`."""
    rows, pixels, classes = new.size(3, 4), new.size(5, 9), new.size(3, 5)
    sizes = [rows * rows + new.size(1, rows - 1), 2 * rows + 1, rows * (rows + 1), rows - 1, 3 * rows - 1]
    batches = [(new.randn(size, pixels), new.ints(0, classes, (size,))) for size in sizes]
    model = network(new, pixels, classes)
    return [(batches, rows, new.size(5, 15) / 100, model, [new.randn(*each.shape) for each in model.parameters()])]


def _accumulated(
    answer: Any, batches: list[Batch], rows: int, lr: float, model: nn.Module, old: list[Tensor]
) -> dict[str, Any]:
    """A probe: loss and weights after an epoch that starts with old gradients, and what model and device got to do."""
    gpu, came = simgpu.accelerator(), []
    model = copy.deepcopy(model).to(gpu)
    model[0].register_forward_pre_hook(lambda _, given: came.append(len(given[0])))
    for parameter, gradient in zip(model.parameters(), old, strict=True):
        parameter.grad = gradient.to(gpu, copy=True)
    before, optimizer = weights(model), torch.optim.SGD(model.parameters(), lr=lr, momentum=0.5)
    steps: list[int] = []
    optimizer.register_step_post_hook(lambda *_: steps.append(1))
    graphs = probes.graphs_at_once(model)
    loss, work = device_work(answer, model, copy.deepcopy(batches), optimizer, gpu, rows)
    number, whole = as_numbers(loss), {images.nbytes for images, _ in batches if len(images) > rows}
    large = [event for event in work["to device"] if event[0] in whole]
    return {
        "Your loss": number,
        "The row of all trained weights": weights(model),
        "Your optimizer's steps": len(steps),
        "Largest piece": max(came, default=0) > rows,
        "Whole batches": len(large) > 0,
        "Graphs at once": graphs() > 1,
        "Waits": len(work["synchronize"]) > 1,
        "loss": round(float(number), 4) if isinstance(number, Tensor) and number.dim() == 0 else show(loss),
        "learned": not torch.equal(weights(model), before),
        "rows": sum(came),
        "most rows": max(came, default=0),
        "bytes": large[0][0] if large else 0,
        "graphs": graphs(),
        "waits": len(work["synchronize"]),
        "line": busiest_line(large or work["synchronize"]),
    }


def _accumulate(model, batches, optimizer, device, rows):
    total, seen = torch.zeros((), device=device), 0
    for images, labels in batches:
        optimizer.zero_grad()
        for x, y in zip(images.split(rows), labels.split(rows), strict=True):
            x, y = x.to(device), y.to(device)
            loss = F.cross_entropy(model(x), y) * len(x) / len(images)
            loss.backward()
            total += loss.detach() * len(images)
        optimizer.step()
        seen += len(images)
    return total.item() / seen


exercise(
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
    spec=Spec(
        draw=_epochs,
        solution=_accumulate,
        measure=lambda ask, batches, rows, lr, model, old: ask.observe(_accumulated, batches, rows, lr, model, old),
        rtol=1e-3,
        atol=1e-4,
        look="clear once per batch, backward for every piece, step once per batch",
        mistakes=r"""
            optimizer.step() → pass
                Nothing was learned: the model's weights have not changed.
                look: the optimizer's `step`, once per batch, after `backward`
                when: not yours["learned"]
            images.split(rows) → images.chunk(rows) && labels.split(rows) → labels.chunk(rows)
                A piece is too large for the memory: at most {rows} rows fit, and yours has {yours[most rows]}.
                look: `split(rows)` makes pieces of `rows` rows; `chunk(rows)` makes `rows` pieces
                when: yours["Largest piece"]
            strict=True): → strict=True):\n            if len(x) < rows: continue
            loss.backward() → model(x); loss.backward()
                {yours[rows]} rows went through the model; each of the {expected[rows]} rows should do so, once.
                look: the last, short piece of a batch, and everything that calls the model
                when: yours["rows"] != expected["rows"]
            \n        optimizer.step() → \n            optimizer.step()
            \n        optimizer.step() → \n            optimizer.step() && * len(x) / len(images) →
                There is a step for every piece, {yours[Your optimizer's steps]} in all; there should be one for every
                batch.
                look: the indentation of `optimizer.step()`
                when: yours["Your optimizer's steps"] > expected["Your optimizer's steps"]
            total, seen = → optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.5)\n    total, seen =
            optimizer.step() → pass && return → optimizer.step()\n    return
                The optimizer that you get should make one step for every batch, {expected[Your optimizer's steps]} in
                all; it made {yours[Your optimizer's steps]}.
                look: `optimizer.step()`, with the optimizer of the arguments
                when: yours["Your optimizer's steps"] < expected["Your optimizer's steps"]
            total.item() / seen → total / seen
                Your result should be a Python number; it is {yours[loss]}.
                look: `.item()`, once, at the end
                when: isinstance(yours["loss"], str)
            optimizer.zero_grad() → pass
            optimizer.zero_grad() → pass && for images, labels in → optimizer.zero_grad()\n    for images, labels in
                Old gradients are still there: `backward()` adds to them, and to those of the batch before.
            optimizer.zero_grad() → pass && optimizer.step() → optimizer.step()\n        optimizer.zero_grad()
                The gradients from before your function went into its first step: clear them before the first batch,
                too.
            optimizer.zero_grad() → pass && x, y = → optimizer.zero_grad()\n            x, y =
                The gradients are cleared for every piece, so only the last one is left for the step.
                look: `zero_grad` once per batch
            * len(x) / len(images) → && loss.detach() * len(images) → loss.detach() * len(x)
                Your step is too large: each piece counts as if it were the whole batch.
                look: weight each piece by its share of the batch's rows
            * len(x) / len(images) → / len(images.split(rows))
                    && loss.detach() * len(images) → loss.detach() * len(images.split(rows)) * len(x)
                A short piece counts as much as a full one: weight each piece by its rows.
                look: the number that you divide the loss of a piece by
            * len(x) / len(images) → * len(x) && loss.detach() * len(images) → loss.detach()
                Your step follows the sum over the images; the loss of a batch is their mean.
            * len(x) / len(images) → * len(x) / rows && loss.detach() * len(images) → loss.detach() * rows
                You divided by the rows of a full piece; the mean of the batch divides by the rows of the batch.
            model(x) → model(x).softmax(1)
                There is a softmax before the loss, and `cross_entropy` already includes one.
            / seen →
                Your loss is a sum over the images: divide it by their number.
            loss.detach() * len(images) → loss.detach() && seen += len(images) → seen += 1
            loss.detach() * len(images) → loss.detach() * len(images) / len(x)
                    && seen += len(images) → seen += len(images.split(rows))
                The training is right, but your loss is a mean of means, in which short batches or pieces count too
                much; it should be the mean over all images.
            * len(images) →
                The training is right, but your loss is {yours[loss]}; the mean over all images is {expected[loss]}.
                look: what you add up, and what you divide by
                when: torch.allclose(yours["The row of all trained weights"], expected["The row of all trained
                    weights"], rtol=1e-3, atol=1e-4) and not torch.allclose(yours["Your loss"], expected["Your loss"],
                    rtol=1e-3, atol=1e-4)
            * len(x) / len(images) → / len(images)
            loss.backward() → (-loss).backward()
                The model's weights differ from those that whole batches would have given.
                look: clear once per batch, weight each piece by its rows, step once per batch
                when: not torch.allclose(yours["The row of all trained weights"], expected["The row of all trained
                    weights"], rtol=1e-3, atol=1e-4)
            images.split(rows) → images.to(device).split(rows)
                A whole batch travels to the device, {yours[bytes]:,} bytes, and it does not fit.
                look: {yours[line]}; first split, then `.to(device)`
                when: yours["Whole batches"]
            for x → whole = 0\n        for x && loss.backward() → whole = whole + loss
                    && optimizer.step() → whole.backward()\n        optimizer.step()
                The graphs of {yours[graphs]} pieces are there at the same time: together they need the memory of a
                whole batch.
                look: call `backward()` for each piece before you begin the next one
                when: yours["Graphs at once"]
            loss.detach() * len(images) → loss.item() * len(images)
                Python waits {yours[waits]} times in this epoch; once, at the end, is enough.
                look: {yours[line]}; add up `loss.detach()` on the device
                when: yours["Waits"]
        """,
        also_right=[
            changed(
                _accumulate,
                ("images.split(rows)", "images.tensor_split(-(-len(images) // rows))"),
                ("labels.split(rows)", "labels.tensor_split(-(-len(images) // rows))"),
                ("F.cross_entropy(model(x), y) * len(x)", "F.cross_entropy(model(x), y, reduction='sum')"),
                ("optimizer.zero_grad()", "model.zero_grad(set_to_none=False)"),
            ),
        ],
    ),
)
