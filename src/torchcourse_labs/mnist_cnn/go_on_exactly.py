"""Stop a training run, and resume it so exactly that nobody can tell."""

import copy
import io
import re
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
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
    model = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Dropout(0.5), nn.Linear(16, 3))
    return model, torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)


def learn(model: nn.Module, optimizer: Optimizer, batches: list[Batch]) -> None:
    model.train()
    for x, y in batches:
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()


def state_of(model: nn.Module, optimizer: Optimizer) -> dict[str, Any]:
    momentum = copy.deepcopy(optimizer.state_dict()["state"])
    state = {"the weights": weights(model), "the momentum": momentum, "the random state": torch.get_rng_state()}
    return state | {"the mode": model.training}


def differing(one: dict[str, Any], other: dict[str, Any]) -> list[str]:
    return [name for name in one if not equal(one[name], other[name])]


def stop_and_go_on(answer: Any, batches: list[Batch], epoch: int, seed: int) -> dict[str, Any]:
    """A probe: train, save, put back into a fresh model and optimizer as in another process, and train on."""
    attempted(answer)
    if not isinstance(answer, tuple | list) or len(answer) != 2 or not all(callable(part) for part in answer):
        return {"instead": answer}
    save, put_back = map(attempted, answer)
    model, optimizer = fresh(seed)
    learn(model, optimizer, batches[:3])
    before = state_of(model, optimizer)
    state = call(save, model, optimizer, epoch, may_change=True)
    seen: dict[str, Any] = {"altered": differing(before, state_of(model, optimizer))}
    try:
        file = io.BytesIO()
        torch.save(state, file)
        state = torch.load(io.BytesIO(file.getvalue()), map_location="cpu")
    except Exception as error:
        refused = re.search(r"GLOBAL (\S+)", str(error))
        return seen | {"not saved": refused[1] if refused else type(error).__name__}
    call(save, *fresh(seed + 2), epoch + 1, may_change=True)  # `state` has to be enough, whatever is saved later
    other, its_optimizer = fresh(seed + 1)
    result = call(put_back, other, its_optimizer, state, may_change=True, may_return_none=True)
    lost = differing(before, state_of(other, its_optimizer))
    learn(other, its_optimizer, batches[3:])
    return seen | {"lost": lost, "epoch": result, "weights": weights(other)}


def judge(answer: Any, rng: Inputs) -> None:
    batches = [(rng.randn(5, 6), rng.ints(0, 3, (5,))) for _ in range(6)]
    epoch, seed = rng.size(3, 60), rng.size(0, 999)
    seen = observe(answer, stop_and_go_on, batches, epoch, seed)
    if "instead" in seen:
        look = "the call of `check`"
        raise Incorrect("The check needs your two functions, (checkpoint, restore).", yours=seen["instead"], look=look)
    wrong_if(
        seen["altered"],
        "altered",
        f"Saving changed the run. After `checkpoint`, this is different: {', '.join(map(str, seen['altered']))}.",
        look="`checkpoint`: a function that returns a state does not change it",
    )
    wrong_if(
        "not saved" in seen,
        "not_saved",
        f"What you return cannot go through a file ({seen.get('not saved')}): `torch.load` takes tensors, numbers, "
        "strings and containers, and refuses any other object, such as a whole model or a NumPy array.",
        look="`model.state_dict()` instead of `model`; `torch.get_rng_state()` is a tensor",
    )
    wrong_if(
        "the weights" in seen["lost"],
        "weights",
        "After `restore`, the model does not have the saved weights.",
        look="`model.load_state_dict(…)`. Is it the model you were given? Is all you need in `state`?",
    )
    wrong_if(
        "the momentum" in seen["lost"],
        "momentum",
        "After `restore`, the optimizer does not have the saved momentum.",
        look="`optimizer.state_dict()` in checkpoint; in restore, `load_state_dict` of the given optimizer",
    )
    wrong_if(
        "the random state" in seen["lost"],
        "random",
        "The random numbers do not continue where they stopped, so dropout drops different values. A seed makes them "
        "start over.",
        look="`torch.get_rng_state()` in checkpoint; `torch.set_rng_state` in restore, after anything random",
    )
    model, optimizer = fresh(seed)
    learn(model, optimizer, batches)
    look = "is all of the state put back, and nothing else changed?"
    same(seen["weights"], weights(model), "The row of all weights after going on", rtol=1e-6, atol=1e-7, look=look)
    number = seen["epoch"].item() if isinstance(seen["epoch"], Tensor | np.number) else seen["epoch"]
    same(number, epoch, "The epoch that `restore` returns", look="the last line of `restore`")


exercise = Exercise(
    seconds=SLOW_START,
    title="Stop, and resume exactly",
    minutes=12,
    difficulty=4,
    points=3,
    takeaway="Weights, momentum, random numbers, position: with all four, an interrupted training run only took a "
    "break.",
    hints=(
        "What changes from step to step? The weights, what the optimizer remembers, the state of the random generator "
        "that dropout draws from, and the number of the epoch.",
        "`model.state_dict()`, `optimizer.state_dict()`, `torch.get_rng_state()`; back with `load_state_dict` (twice) "
        "and `torch.set_rng_state`.",
        '`return {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "random": torch.get_rng_state(), '
        '"epoch": epoch}`, and in `restore` the same four the other way around, ending in `return state["epoch"]`.',
    ),
    judge=judge,
)
