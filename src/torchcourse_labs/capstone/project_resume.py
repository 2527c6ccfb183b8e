"""A training run that survives a kill: called again, it goes on as if nothing had happened, bit for bit."""

import json
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

from labcheck.authoring import Exercise, Incorrect, Inputs, attempted, equal, observe, wrong_if
from torchcourse_labs.capstone import _training as training
from torchcourse_labs.capstone._training import EPOCHS, KILLED, PER_EPOCH, epochs

LEFT = PER_EPOCH * (EPOCHS - 1)  # steps from the checkpoint after the first epoch to the end
DIFFERS = {
    "": ("", ""),
    "weights": ("the weights are not those of the undisturbed run", "the model's state_dict"),
    "rows": ("the images come in a different order", "let the order depend only on seed and epoch"),
    "settings": ("the learning rate, or another setting of the optimizer, takes a different course", "the schedule"),
    "state": ("the optimizer has lost what it remembered of earlier gradients", "`optimizer.state_dict()`"),
    "draws": ("the model draws other random numbers", "seed again in each epoch, or save `torch.get_rng_state()`"),
}


def first_difference(steps: list[dict], others: list[dict]) -> str:
    """What differs first between two runs, step by step; "" if nothing does."""
    pairs = zip(steps, others, strict=False)
    differ = (what for one, other in pairs for what in DIFFERS if one.get(what) != other.get(what))
    return next(differ, "")


def interrupt(answer: Any, samples: tuple, starts: list, how: dict, kill_in: int) -> dict:
    """A probe: a whole run, one with another seed, and what happens to runs that are called again: one killed in a
    step, one killed in the middle of a save, and one that had finished.

    Each session has other random numbers to begin with: what is equal is so because the answer sees to it. Nothing
    further is tried where something is wrong already.
    """
    attempted(answer)
    with tempfile.TemporaryDirectory() as home:
        inputs = samples, starts, how
        run = partial(training.perform, answer, 1, home)
        whole = training.alone(answer, home, 1, *inputs, "whole")
        if whole["returned"] != "a model":
            return whole
        steps = whole["steps"]
        seen = {"returned": "a model", "learned": whole["learned"], "rows": [step["rows"] for step in steps]}
        seen["left"] = any(step.get("left") for step in steps)
        if seen["left"] or not seen["learned"] or not training.each_image_once(seen["rows"], samples[0]):
            return seen

        other = training.alone(answer, home, 2, samples, starts, how | {"seed": how["seed"] + 1}, "other")
        pairs = [*zip(steps[:PER_EPOCH], other["steps"], strict=False)]
        seen["seedless"] = any(pairs and all(a[what] == b[what] for a, b in pairs) for what in ("rows", "draws"))

        run(3, *inputs, "killed", kill_in=kill_in)
        file = Path(home, KILLED)
        killed = json.loads(file.read_text()) if file.exists() else []  # an answer that never came to that step
        again = run(4, *inputs, "killed")
        resumed = again[0].value if again.ok else {"steps": [], "weights": whole["weights"]}
        later = resumed["steps"]
        seen |= {"stopped": again.sentence(), "later": len(later)}
        seen |= {"repeated": first_difference(steps, killed), "differs": first_difference(steps[-len(later) :], later)}
        if not seen["differs"] and not equal(whole["weights"], resumed["weights"]):
            seen["differs"] = "weights"
        if seen["stopped"] or seen["differs"] or len(later) != LEFT:
            return seen

        run(5, *inputs, "cut", cut=2)
        again = run(6, *inputs, "cut")
        seen["cut"] = again.ok and equal(again[0].value["weights"], whole["weights"])
        again = run(7, *inputs, "whole")
        return seen | {"more": again.sentence() or len(again[0].value.get("steps", [None]))}


def judge(answer: Any, rng: Inputs) -> None:
    samples, starts, how, kill_in = training.draw(rng)
    seen = observe(answer, interrupt, samples, starts, how, kill_in)
    training.judge_returned(seen)
    training.judge_rows(seen["rows"], samples[0])
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
        f"Two runs with the same seed differ before one of them is killed: {DIFFERS[seen['repeated']][0]}.",
        look="what is random in `train`? It may depend on seed and epoch, and on nothing else",
    )
    wrong_if(
        seen["stopped"],
        "does_not_finish",
        f"Called again after the kill, your training does not finish. {seen['stopped']}",
        look="do you restore the number of finished epochs, and the schedule with it?",
    )
    wrong_if(
        seen["later"] != LEFT,
        "other_steps",
        f"After the kill in the second epoch, your training should take the last {LEFT} steps again, from the "
        "checkpoint after the first.",
        look="is there a file in `folder` after each epoch? Does the next call read it, with the number of epochs?",
        yours=f"{seen['later']} steps",
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
        "First write the loop without saving, and ask of each line: what does it use that an earlier step changed? You "
        "need not save what depends only on seed and epoch: `sampler.set_epoch(epoch)`, `torch.manual_seed(…)`.",
        "`checkpoint.save(path, model=model, optimizer=optimizer, schedule=schedule, done=epoch + 1)` after an epoch, "
        "and `checkpoint.restore` with the same parts before the first one.",
    ),
    judge=judge,
)
