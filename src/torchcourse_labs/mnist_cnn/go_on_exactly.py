"""Stop a training run, and resume it so exactly that nobody can tell."""

import copy
import io
import re
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn
from torch.optim import Optimizer

from labcheck.authoring import Exercise, Incorrect, Inputs, attempted, call, equal, observe, same, wrong_if
from labcheck.probes import SLOW_START, Batch, weights


def checkpoint(model: nn.Module, optimizer: Optimizer, epoch: int) -> dict[str, Any]:
    states = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
    return states | {"random": torch.get_rng_state(), "epoch": epoch}


def restore(model: nn.Module, optimizer: Optimizer, state: dict[str, Any]) -> int:
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    torch.set_rng_state(state["random"])
    return state["epoch"]


solution = (checkpoint, restore)


def fresh(seed: int) -> tuple[nn.Module, Optimizer]:
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(6, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.5), nn.Linear(16, 3))
    return model, torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)


def learn(model: nn.Module, optimizer: Optimizer, batches: list[Batch]) -> None:
    model.train()
    for x, y in batches:
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()


def state_of(model: nn.Module, optimizer: Optimizer) -> dict[str, Any]:
    momentum = copy.deepcopy(optimizer.state_dict()["state"])
    row = torch.cat([value.double().flatten() for value in model.state_dict().values()])
    return {"weights": row, "mode": model.training, "momentum": momentum, "random": torch.get_rng_state()}


def stop_and_go_on(answer: Any, batches: list[Batch], epoch: int, seed: int) -> dict[str, Any]:
    """A probe: train, save, put back into a fresh model and optimizer as in another process, and train on."""
    attempted(answer)
    if not isinstance(answer, tuple | list) or len(answer) != 2:
        return {"instead": answer}
    save, put_back = answer
    model, optimizer = fresh(seed)
    learn(model, optimizer, batches[:3])
    before = state_of(model, optimizer)
    state, file = call(save, model, optimizer, epoch, may_change=True, may_return_none=True), io.BytesIO()
    if state is None:
        raise Incorrect("Your function `checkpoint` returned None.", look="is there a `return` at its end?")
    seen: dict[str, Any] = {"before": before, "saved": state_of(model, optimizer)}
    try:
        torch.save(state, file)
        file.seek(0)
        state = torch.load(file, map_location="cpu")
    except Exception as error:
        refused = re.search(r"GLOBAL (\S+)", str(error))
        return seen | {"refused": refused[1] if refused else str(error).splitlines()[0]}
    call(save, *fresh(seed + 2), epoch + 1, may_change=True)  # `state` has to be enough, whatever is saved later
    model, optimizer = fresh(seed + 1)
    seen["epoch"] = call(put_back, model, optimizer, state, may_change=True, may_return_none=True)
    seen["restored"] = state_of(model, optimizer)
    learn(model, optimizer, batches[3:])
    return seen | {"weights": weights(model)}


def judge(answer: Any, rng: Inputs) -> None:
    batches = [(rng.randn(5, 6), rng.ints(0, 3, (5,))) for _ in range(6)]
    epoch, seed = rng.size(3, 60), rng.size(0, 999)
    seen = observe(answer, stop_and_go_on, batches, epoch, seed)
    if "instead" in seen:
        raise Incorrect("The check needs your two functions, (checkpoint, restore).", yours=seen["instead"])
    before = seen["before"]
    wrong_if(
        not equal(before, seen["saved"]),
        "altered",
        "Saving changed the run: after `checkpoint`, the weights, the mode, the momentum or the random state differ.",
        look="`checkpoint`: a function that returns a state does not change it",
    )
    wrong_if(
        "refused" in seen,
        "not_saved",
        "What you return cannot go through a file: `torch.save` and `torch.load` take tensors, numbers, strings and "
        "containers, and no other objects, such as a whole model or a NumPy array.",
        look="`model.state_dict()` instead of `model`; `torch.get_rng_state()` is a tensor",
        expected="a state that `torch.load` accepts",
        yours=seen.get("refused"),
    )
    restored, what = seen["restored"], "The row of all weights and buffers after `restore`"
    look = "the given model's `load_state_dict`, from what `checkpoint` returns; batch norm has more than parameters"
    same(restored["weights"], before["weights"], what, look=look)
    lost = not equal(restored["momentum"], before["momentum"])
    look = "`optimizer.state_dict()` in checkpoint; in restore, `load_state_dict` of the given optimizer, no new one"
    wrong_if(lost, "momentum", "After `restore`, the optimizer does not have the saved momentum.", look)
    wrong_if(
        not equal(restored["random"], before["random"]),
        "random",
        "The random numbers do not continue where they stopped, so dropout drops different values. A seed makes them "
        "start over.",
        look="`torch.get_rng_state()` in what `checkpoint` returns; `set_rng_state` in `restore` after anything random",
    )
    same(restored["mode"], True, "`model.training` after `restore`", look="`model.eval()`: the mode stays as it was")
    model, optimizer = fresh(seed)
    learn(model, optimizer, batches)
    what, look = "The row of all weights after going on", "what else `restore` changes"
    same(seen["weights"], weights(model), what, rtol=1e-6, atol=1e-7, look=look)
    same(seen["epoch"], epoch, "The epoch that `restore` returns", dtype=False, look="`epoch`, as it is saved")


exercise = Exercise(
    seconds=SLOW_START,
    title="Stop, and resume exactly",
    minutes=12,
    difficulty=4,
    points=3,
    takeaway="Weights, momentum, random numbers, position: with all four, an interrupted training run only took a "
    "break.",
    hints=(
        "What changes from step to step? The weights, what batch norm and the optimizer remember, the state of the "
        "random generator that dropout draws from, and the number of the epoch.",
        "`model.state_dict()`, `optimizer.state_dict()`, `torch.get_rng_state()`; back with `load_state_dict` (twice) "
        'and `torch.set_rng_state`; `restore` ends in `return state["epoch"]`.',
    ),
    judge=judge,
)
