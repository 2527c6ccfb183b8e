"""A training run that survives a kill: called again, it goes on as if nothing had happened, bit for bit."""

import json
import tempfile
from pathlib import Path
from typing import Any

import torch

from labcheck import ranks
from labcheck.authoring import Exercise, Incorrect, Inputs, attempted, observe, wrong_if
from torchcourse_labs.capstone._training import (
    EPOCHS,
    KILLED,
    PER_EPOCH,
    draw,
    each_image_once,
    epochs,
    perform,
    settings,
)


def first_difference(steps: list[dict], others: list[dict]) -> str:
    """What differs first between two runs, step by step; "" if nothing does."""
    for one, other in zip(steps, others, strict=False):
        for what in ("weights", "rows", "settings", "state", "draws"):
            if one.get(what) != other.get(what):
                return what
    return ""


def interrupt(answer: Any, samples: tuple, starts: list, seed: int, kill_in: int) -> dict:
    """A probe: a whole run, one with another seed, and what happens to runs that are called again: one killed in a
    step, one killed in the middle of a save, and one that had finished.

    Each session has other random numbers to begin with: what is equal is so because the answer sees to it. Nothing
    further is tried where something is wrong already.
    """
    attempted(answer)
    with tempfile.TemporaryDirectory() as home:
        inputs = samples, starts, settings(seed)
        outcome = perform(answer, 1, home, 1, *inputs, "whole", noise=True)
        ranks.judge(outcome)
        whole = outcome[0].value
        if whole["returned"] != "a model":
            return whole
        steps = whole["steps"]
        seen = {"returned": "a model", "learned": whole["learned"], "rows": [step["rows"] for step in steps]}
        seen["left"] = any(step.get("left") for step in steps)
        if seen["left"] or not seen["learned"] or not each_image_once(seen["rows"], samples[0]):
            return seen

        other = perform(answer, 1, home, 2, samples, starts, settings(seed + 1) | {"epochs": 1}, "other", noise=True)
        ranks.judge(other)
        others = other[0].value.get("steps", [])[:PER_EPOCH]
        alike = [
            [step[what] for step in others] == [step[what] for step in steps[:PER_EPOCH]] for what in ("rows", "draws")
        ]
        seen["seedless"] = any(alike)
        if seen["seedless"]:
            return seen

        perform(answer, 1, home, 3, *inputs, "killed", noise=True, kill_in=kill_in)
        file = Path(home, KILLED)
        killed = json.loads(file.read_text()) if file.exists() else []  # an answer that never came to that step
        outcome = perform(answer, 1, home, 4, *inputs, "killed", noise=True)
        resumed = outcome[0].value if outcome.ok else {"steps": [], "weights": whole["weights"]}
        later = resumed["steps"]
        seen |= {"fresh": bool(killed), "stopped": outcome.sentence(), "later": len(later)}
        seen |= {"repeated": first_difference(steps, killed), "differs": ""}
        if 0 < len(later) < len(steps):
            rest = steps[-len(later) :]
            same_images = [step["rows"] for step in rest] == [step["rows"] for step in later]
            first = first_difference(rest[:1], later[:1])
            seen["differs"] = first if same_images or first == "weights" else "rows"
            seen["differs"] = seen["differs"] or first_difference(rest, later)
        if not seen["differs"] and not torch.equal(whole["weights"], resumed["weights"]):
            seen["differs"] = "weights"
        if seen["stopped"] or seen["differs"] or not killed:
            return seen

        perform(answer, 1, home, 5, *inputs, "cut", noise=True, cut=2)
        outcome = perform(answer, 1, home, 6, *inputs, "cut", noise=True)
        seen["cut"] = outcome.ok and torch.equal(outcome[0].value["weights"], whole["weights"])
        finished = perform(answer, 1, home, 7, *inputs, "whole", noise=True)
        seen["more"] = finished.sentence() or len(finished[0].value.get("steps", [None]))
    return seen


DIFFERS = {
    "weights": ("the weights are not those of the undisturbed run", "the model's state_dict"),
    "rows": ("the images come in a different order", "let the order depend only on seed and epoch"),
    "settings": ("the learning rate, or another setting of the optimizer, takes a different course", "the schedule"),
    "state": ("the optimizer has lost what it remembered of earlier gradients", "`optimizer.state_dict()`"),
    "draws": ("the model draws other random numbers", "seed again in each epoch, or save `torch.get_rng_state()`"),
    "": ("", ""),
}


def judge(answer: Any, rng: Inputs) -> None:
    samples, starts, seed, kill_in = draw(rng)
    seen = observe(answer, interrupt, samples, starts, seed, kill_in)
    wrong_if(
        seen["returned"] != "a model",
        "returned",
        f"Your function should return the trained model; it returned an object of type {seen['returned']}.",
        look="the model itself, without DDP around it",
    )
    wrong_if(
        not each_image_once(seen["rows"], samples[0]),
        "once",
        "An epoch should train the model that you return, in train mode, on each image once, in batches of batch_size.",
        look="here, 48 images in batches of 8 make 6 steps an epoch, and 3 epochs 18 steps",
        yours=f"{len(seen['rows'])} steps",
    )
    wrong_if(
        seen["left"],
        "adds_up",
        "Your gradients add up: when backward begins, those of the step before are still there.",
        look="`optimizer.zero_grad()` in each step",
    )
    if not seen["learned"]:
        raise Incorrect("The loss on the training images is not lower after the training.", look="sign, and `step()`")
    first, second = epochs(seen["rows"])[:2]
    wrong_if(
        first == second or seen["seedless"],
        "seed",
        "Every epoch, or every seed, brings the same order of images or the same random numbers.",
        look="`DistributedSampler(train_set, seed=seed)` and its `set_epoch`; `torch.manual_seed` with seed and epoch",
    )
    wrong_if(
        seen["repeated"],
        "not_repeatable",
        f"Two runs with the same seed differ before one of them is killed. What differs first: the {seen['repeated']}.",
        look="what is random in `train`? It may depend on seed and epoch, and on nothing else",
    )
    wrong_if(
        seen["stopped"],
        "does_not_finish",
        f"Called again after the kill, your training does not finish. {seen['stopped']}",
        look="do you restore the number of finished epochs, and the schedule with it?",
    )
    left = PER_EPOCH * (EPOCHS - 1)
    wrong_if(
        not seen["fresh"] or seen["later"] != left,
        "other_steps",
        f"After the kill in the second epoch, your training should take the last {left} steps again, from the "
        "checkpoint after the first.",
        look="is there a file in `folder` after each epoch? Does the next call read it, with the number of epochs?",
        yours=f"{seen['later']} steps" if seen["fresh"] else "in an empty folder, it does not begin with step 1",
    )
    what, look = DIFFERS[seen["differs"]]
    wrong_if(seen["differs"], "resumed_differently", f"After the kill, {what}.", look=look)
    wrong_if(
        not seen["cut"],
        "half_written",
        "Killed in the middle of a save, your training can't recover: the file is half written.",
        look="write to a new file, then `os.replace`; `checkpoint.save` does that",
    )
    wrong_if(
        seen["more"] != 0,
        "after_the_end",
        "Called again after its last epoch, your training should return at once.",
        look="the last epoch leaves a checkpoint, too; what happens if no epoch is left?",
        yours=seen["more"] if isinstance(seen["more"], str) else f"{seen['more']} more steps",
    )


exercise = Exercise(
    title="A training run that survives a kill",
    minutes=75,
    difficulty=4,
    points=5,
    seconds=60,
    takeaway="Resumed means equal, bit for bit. Weights, optimizer, schedule, order, random numbers: all of it.",
    hints=(
        "First write the loop without saving, and ask of each line: what does it use that an earlier step changed?",
        "You don't need to save what depends only on seed and epoch: `sampler.set_epoch(epoch)`, and "
        "`torch.manual_seed(…)` at the start of each epoch.",
        "`checkpoint.save(path, model=model, optimizer=optimizer, schedule=schedule, done=epoch + 1)` after an epoch, "
        "and `checkpoint.restore` with the same parts before the first one.",
    ),
    judge=judge,
)
