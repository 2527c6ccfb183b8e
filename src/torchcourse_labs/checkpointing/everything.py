"""All that a training run remembers: saved in one process, put back in another one, it goes on bit for bit."""

import io
import random
import re
from typing import Any

import torch
from torch import Tensor

from labcheck import ranks
from labcheck.authoring import Exercise, Inputs, near, same, wrong_if
from labcheck.probes import weights
from torchcourse.lab.interrupted import Run

PARTS = {  # what changes from step to step -> where to look
    "the weights that the optimizer updates": "`load_state_dict` fills the model that is there; `run` gets no new one",
    "the weights": "`run.model.load_state_dict(…)`",
    "the momentum": "`run.optimizer.state_dict()`, and `load_state_dict` of the optimizer in `run`",
    "the step of the scheduler": "`run.scheduler.state_dict()`",
    "the learning rate": "the optimizer holds it: nothing after its `load_state_dict` may change it",
    "the scale of the scaler": "`run.scaler.state_dict()`",
    "the averaged weights": "`run.average.state_dict()`: the weights, and how many steps it has averaged",
    "the epoch": "`everything` keeps `run.epoch`, and `go_on` assigns it to `run` itself",
    "the batch": "`everything` keeps `run.batch`, and `go_on` assigns it to `run` itself",
    "PyTorch's random numbers": "`torch.get_rng_state()`, `torch.set_rng_state(…)` after all that draws",
    "NumPy's random numbers": "`run.rng.bit_generator.state`; `torch.set_rng_state` does not touch NumPy",
    "Python's random numbers": "`random.getstate()`, `random.setstate(…)`; `torch.set_rng_state` does not touch Python",
    "the mode of the model": "`everything` and `go_on` have no need to call `eval()` or `train()`",
}


def everything(run: Run) -> dict[str, Any]:
    return {
        "model": run.model.state_dict(),
        "optimizer": run.optimizer.state_dict(),
        "scheduler": run.scheduler.state_dict(),
        "scaler": run.scaler.state_dict(),
        "average": run.average.state_dict(),
        "torch": torch.get_rng_state(),
        "numpy": run.rng.bit_generator.state,
        "python": random.getstate(),
        "position": (run.epoch, run.batch),
    }


def go_on(run: Run, state: dict[str, Any]) -> None:
    run.model.load_state_dict(state["model"])
    run.optimizer.load_state_dict(state["optimizer"])
    run.scheduler.load_state_dict(state["scheduler"])
    run.scaler.load_state_dict(state["scaler"])
    run.average.load_state_dict(state["average"])
    torch.set_rng_state(state["torch"])
    run.rng.bit_generator.state = state["numpy"]
    random.setstate(state["python"])
    run.epoch, run.batch = state["position"]


solution = (everything, go_on)


def parts(run: Run) -> list[Any]:
    """The state of a run, in the order of PARTS."""
    momentum = [run.optimizer.state.get(each, {}).get("momentum_buffer") for each in run.model.parameters()]
    updated = run.optimizer.param_groups[0]["params"]
    return [
        all(one is other for one, other in zip(updated, run.model.parameters(), strict=False)),
        weights(run.model),
        torch.cat([torch.zeros(1), *(each.flatten() for each in momentum if each is not None)]),
        run.scheduler.last_epoch,
        run.optimizer.param_groups[0]["lr"],
        [run.scaler.get_scale(), run.scaler.state_dict()["_growth_tracker"]],
        torch.cat([weights(run.average), run.average.n_averaged[None]]),
        run.epoch,
        run.batch,
        torch.get_rng_state(),
        str(run.rng.bit_generator.state),
        str(random.getstate()),
        run.model.training,
    ]


def first_session(answer: tuple, seed: int, steps: int) -> dict[str, Any]:
    """On a rank: train, and save. Returns the file, or why there is none."""
    run, file = Run(seed), io.BytesIO()
    for _ in range(steps):
        run.step()
    state = answer[0](run)
    seen = {"parts": parts(run), "none": state is None}
    try:
        torch.save(state, file)
        torch.load(io.BytesIO(file.getvalue()))
    except Exception as error:
        words = re.sub(" at 0x[0-9a-f]+", "", f"{type(error).__name__}: {error}").partition("GLOBAL ")
        return seen | {"refused": words[2].split()[0] if words[2] else words[0].splitlines()[0][:100]}
    return seen | {"file": torch.frombuffer(bytearray(file.getvalue()), dtype=torch.uint8)}


def second_session(answer: tuple, seed: int, file: Tensor, steps: int) -> dict[str, Any]:
    """On a rank of another process: put everything into a fresh run, and train on."""
    run = Run(seed)
    fresh = parts(run)
    answer[1](run, torch.load(io.BytesIO(file.numpy().tobytes())))
    seen = {"fresh": fresh, "parts": parts(run)}
    try:
        return seen | {"losses": [run.step() for _ in range(steps)]}
    except AssertionError as error:  # of the scaler, if the optimizer has other weights than the model
        return seen | {"losses": str(error)}


def differing(ones: list, others: list) -> list[str]:
    return [name for name, one, other in zip(PARTS, ones, others, strict=True) if not near(one, other, 1e-5, 1e-6)]


def judge(answer: Any, rng: Inputs) -> None:
    seed, (before, after) = rng.size(0, 999), rng.pick([(7, 5), (8, 5), (11, 4)])
    run = Run(seed)  # the uninterrupted one
    for _ in range(before):
        run.step()
    then, losses = parts(run), [run.step() for _ in range(after)]

    one = ranks.observe(answer, first_session, seed, before, functions=2, world_size=1, look="")[0]
    wrong_if(one["none"], "none", "`everything` returned None.", look="is there a `return` at its end?")
    altered = differing(one["parts"], then)
    wrong_if(
        altered,
        "altered",
        f"Saving changed the run. After `everything`, these are not as before: {', '.join(altered)}.",
        look="`everything`: a function that returns a state does not change it",
    )
    wrong_if(
        "refused" in one,
        "refused",
        "What you return does not survive a trip through a file: `torch.load` takes tensors, numbers, strings, and "
        f"containers of these. Refused: {one.get('refused')}.",
        look="`state_dict()` of models and optimizers, `.bit_generator.state` of a generator of NumPy",
    )

    other = ranks.observe(answer, second_session, seed, one["file"], after, functions=2, world_size=1, look="")[0]
    lost, touched = differing(other["parts"], then), differing(other["parts"], other["fresh"])
    look, names = PARTS.get(lost[0]) if lost else None, ", ".join(lost)
    wrong_if(
        all("random" in name for name in touched),
        "untouched",
        "Nothing is back in `run`: `go_on` has to fill the very run that it gets, and what it returns is ignored.",
        look="`load_state_dict` of each part of `run`; no new `Run`",
    )
    wrong_if(
        lost and all("random" in name for name in lost),
        "random",
        f"The random numbers do not go on where they stopped: dropout, noise, or mirroring differs. Lost: {names}.",
        look,
    )
    wrong_if(
        lost and {*lost} <= {"the epoch", "the batch"},
        "position",
        f"The position is lost: the run repeats batches, or skips some. Lost: {names}.",
        look,
    )
    wrong_if(lost, "lost", f"After `go_on`, not everything is as it was when you saved it. Lost: {names}.", look)
    same(other["losses"], losses, "The list of losses after going on", rtol=1e-5, look="`go_on`: it only restores")


exercise = Exercise(
    title="Everything that a run remembers",
    minutes=10,
    difficulty=4,
    points=4,
    takeaway="If it changes from step to step, it belongs in the file: five state dicts, three random states, two "
    "numbers for the position. `torchcourse.checkpoint.RngState` holds the random states.",
    hints=(
        "Go through `step` line by line: what does the line read that a step before has written? Five of these things "
        "have a `state_dict()`, three draw random numbers, two are plain numbers.",
        "`torch.get_rng_state()` and `torch.set_rng_state`; `random.getstate()` and `random.setstate`; "
        "`run.rng.bit_generator.state` is a dict that you can read and assign.",
        '`for name in ("model", "optimizer", "scheduler", "scaler", "average"):` with '
        "`state[name] = getattr(run, name).state_dict()`; then the random states, `run.epoch` and `run.batch`.",
    ),
    judge=judge,
    lends=solution,
    seconds=120.0,  # the first check of a session starts the server from which processes are forked
)
