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


def everything(run: Run) -> dict[str, Any]:
    return {
        "parts": {
            name: getattr(run, name).state_dict() for name in ("model", "optimizer", "scheduler", "scaler", "average")
        },
        "torch": torch.get_rng_state(),
        "numpy": run.rng.bit_generator.state,
        "python": random.getstate(),
        "position": (run.epoch, run.batch),
    }


def go_on(run: Run, state: dict[str, Any]) -> None:
    for name, part in state["parts"].items():
        getattr(run, name).load_state_dict(part)
    torch.set_rng_state(state["torch"])
    run.rng.bit_generator.state = state["numpy"]
    random.setstate(state["python"])
    run.epoch, run.batch = state["position"]


solution = (everything, go_on)


def parts(run: Run) -> dict[str, Any]:
    """What changes from step to step."""
    momentum = [run.optimizer.state.get(each, {}).get("momentum_buffer") for each in run.model.parameters()]
    return {
        "the weights of `run.model`": weights(run.model),
        "the momentum in `run.optimizer`": torch.cat([torch.zeros(1), *(m.ravel() for m in momentum if m is not None)]),
        "the learning rate in `run.optimizer`": run.optimizer.param_groups[0]["lr"],
        "the step of `run.scheduler`": run.scheduler.last_epoch,
        "the scale of `run.scaler`": run.scaler.get_scale(),
        "the count of good steps in `run.scaler`": run.scaler.state_dict()["_growth_tracker"],
        "the weights of `run.average`": weights(run.average),
        "`run.average.n_averaged`": run.average.n_averaged.item(),
        "`run.epoch`": run.epoch,
        "`run.batch`": run.batch,
        "PyTorch's random state": torch.get_rng_state(),
        "NumPy's random state in `run.rng`": str(run.rng.bit_generator.state),
        "Python's random state": str(random.getstate()),
        "the mode of `run.model`": run.model.training,
    }


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
        kind = re.search(r"GLOBAL (\S+)", str(error))
        return seen | {"refused": kind[1] if kind else f"{type(error).__name__}: {error}".splitlines()[0]}
    return seen | {"file": torch.frombuffer(bytearray(file.getvalue()), dtype=torch.uint8)}


def second_session(answer: tuple, seed: int, file: Tensor, steps: int) -> dict[str, Any]:
    """On a rank of another process: put everything into a fresh run, and train on."""
    run = Run(seed)
    fresh, filled = parts(run), [name for name, part in vars(run).items() if hasattr(part, "load_state_dict")]
    answer[1](run, torch.load(io.BytesIO(file.numpy().tobytes())))
    for name in filled:
        if not hasattr(part := getattr(run, name, None), "state_dict"):
            return {"replaced": f"`run.{name}` is of type {type(part).__name__}"}
    return {"fresh": fresh, "parts": parts(run), "losses": [run.step() for _ in range(steps)]}


def differing(one: dict, other: dict) -> list[str]:
    return [name for name in other if not near(one[name], other[name], 1e-5, 1e-6)]


def judge(answer: Any, rng: Inputs) -> None:
    seed, before, after = rng.size(0, 999), rng.pick([7, 8, 11]), 5
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
        f"Saving changed the run. After `everything`, this is not as before: {', '.join(altered)}.",
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
    replaced, look = other.get("replaced"), "`load_state_dict` fills a part of `run`, an assignment replaces it"
    wrong_if(replaced, "replaced", f"After `go_on`, {replaced}.", look=look)
    lost, touched = differing(other["parts"], then), differing(other["parts"], other["fresh"])
    wrong_if(
        all("random" in name for name in touched),
        "untouched",
        "Nothing is back in `run`: `go_on` has to fill the very run that it gets, and what it returns is ignored.",
        look="`load_state_dict` of each part of `run`; no new `Run`",
    )
    wrong_if(
        lost,
        "lost",
        f"After `go_on`, this is not as it was when you saved: {', '.join(lost)}.",
        look="does `everything` keep it, does `go_on` put it back, and does nothing change it after that?",
    )
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
        '`getattr(run, name).state_dict()` for each name of "model", "optimizer", "scheduler", "scaler", "average". '
        "`torch.get_rng_state()` and `torch.set_rng_state`, `random.getstate()` and `random.setstate`; "
        "`run.rng.bit_generator.state` is a dict that you can read and assign.",
    ),
    judge=judge,
    lends=solution,
    seconds=ranks.SECONDS,
)
