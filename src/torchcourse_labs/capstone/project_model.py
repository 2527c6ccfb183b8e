"""A model that takes bytes: scaling inside, logits out, new weights at each call."""

from typing import Any

import torch
from torch import Tensor, nn

from labcheck import probes
from labcheck.authoring import Exercise, Incorrect, Inputs, attempted, call, near, observe, wrong_if
from torchcourse.lab.targets import TARGETS
from torchcourse_labs.beyond_python._shared import attempt

FRESH = ("a new network at each call", "train mode", "the same weights after the same seed", "others after another")


def largest_input(model: nn.Module, images: Tensor) -> float:
    """The largest number that the first layer with weights gets; 0 where that is a normalization."""
    seen = [0.0]

    def note(layer: nn.Module, given: tuple) -> None:
        seen.append(0.0 if "Norm" in type(layer).__name__ else given[0].float().abs().max().item())

    for layer in model.modules():
        if isinstance(getattr(layer, "weight", None), Tensor):
            layer.register_forward_pre_hook(note)
    model(images)
    return seen[:2][-1]


def build(answer: Any, gray: Tensor, color: Tensor, order: Tensor) -> dict[str, Any]:
    """A probe. gray: uint8 [7, 1, 28, 28]; color: uint8 [7, 3, 32, 32]; order: int64 [7], another order of them."""
    if not (isinstance(answer, tuple) and len(answer) == 2 and answer[0] in TARGETS):
        raise Incorrect('Give the check (NAME, build_model). NAME is "mnist", "fashion_mnist", or "cifar10".')
    name, make = answer
    attempted(make)
    images, models = color if name == "cifar10" else gray, []
    with torch.random.fork_rng(devices=[]):
        for seed in (0, 0, 1):
            torch.manual_seed(seed)
            models.append(call(make))
    model = models[0]
    if not isinstance(model, nn.Module):
        raise Incorrect("`build_model()` should return an object of a class derived from nn.Module: `Net()`.")
    if not any(parameter.requires_grad for parameter in model.parameters()):
        raise Incorrect("PyTorch finds no weights that can learn. Are layers in a list, and not in `nn.Sequential`?")
    first, again, other = map(probes.weights, models)
    fresh = [model is not models[2], model.training, first.equal(again), not first.equal(other)]
    bytes_of = [value.numel() * value.element_size() for value in model.state_dict().values()]
    with torch.no_grad():
        logits = attempt(model.eval(), images)
        if isinstance(logits, str) and isinstance(attempt(model, images.float()), Tensor):
            return {"takes floats": True}
        logits, single = (call(model, each, may_change=True) for each in (images, images[:1]))
        seen = {"name": name, "fresh": fresh, "bytes": sum(bytes_of), "logits": logits, "single": single}
        if isinstance(logits, Tensor) and logits.shape == (7, 10):
            parts = [call(model, images[part], may_change=True) for part in order.split([1, 2, 4])]
            seen |= {"apart": parts, "largest": largest_input(model, images)}
            seen |= {"again": model(images), "other": models[2].eval()(images)}
    return seen


def judge(answer: Any, rng: Inputs) -> None:
    order = rng.permutation(7)
    seen = observe(answer, build, rng.images(7, 1, 28, 28), rng.images(7, 3, 32, 32), order)
    wrong_if(
        "takes floats" in seen,
        "takes_floats",
        "Your model takes floats, but images arrive as bytes (uint8). Callers should not have to prepare them.",
        look="turn them into floats in `forward`, or in a first layer",
    )
    logits = seen["logits"]
    for result, images in ((logits, 7), (seen["single"], 1)):
        wrong_if(
            not isinstance(result, Tensor) or result.shape != (images, 10) or result.dtype != torch.float32,
            "shape",
            "The model should return logits: a row for each image, a column for each of the ten classes.",
            look="`squeeze()` also removes a batch of one",
            expected=f"a float32 tensor of shape ({images}, 10)",
            yours=result,
        )
    wrong_if(
        seen["fresh"] != [True] * 4,
        "not_fresh",
        f"`build_model` should return {FRESH[seen['fresh'].index(False) if False in seen['fresh'] else 0]}.",
        look="what stands outside of the function; `eval()`; `torch.manual_seed`, which is for the caller",
    )
    wrong_if(
        seen["largest"] > 20,
        "unscaled",
        f"Your first layer gets numbers up to {seen['largest']:.0f}. Scale the bytes first, or it learns slowly.",
        look="`/ 255`, then mean and standard deviation",
    )
    if near(logits[:1].expand_as(logits), logits):
        raise Incorrect("All images get the same logits.", look="what becomes of the images in `forward`")
    wrong_if(
        min(logits.min(), seen["other"].min()) >= 0 or near(logits.exp().sum(1), torch.ones(7), 1e-3),
        "no_logits",
        "Your logits look like the output of a softmax, a log_softmax, a sigmoid, or a ReLU. Return what the last "
        "linear layer gives.",
        look="`cross_entropy` has a softmax inside, and a second one flattens the gradients",
    )
    wrong_if(
        not near(seen["again"], logits, 1e-3, 1e-3) or not near(torch.cat(seen["apart"]), logits[order], 1e-3, 1e-3),
        "not_alone",
        "In eval mode, the logits of an image are different the second time, or depend on the other images.",
        look="`F.dropout` needs `training=self.training`; normalize with numbers that are known beforehand",
    )
    wrong_if(
        seen["bytes"] > TARGETS[seen["name"]].bytes,
        "too_large",
        f"Your weights alone take {seen['bytes']:,} bytes, and the exported file may have "
        f"{TARGETS[seen['name']].bytes:,}.",
        look="where are the parameters? Usually in a linear layer after a large image",
    )


exercise = Exercise(
    title="A model that takes bytes",
    minutes=30,
    difficulty=2,
    points=3,
    takeaway="What is inside the model cannot be forgotten later: scaling and normalization travel with the weights.",
    hints=(
        "Start with the smallest network that could work: two convolutions and a linear layer.",
        "`images.float() / 255` belongs in `forward`, and so do mean and standard deviation. Or: `return "
        "nn.Sequential(models.Normalize(NAME), nn.Conv2d(1, 16, 5, stride=2), nn.ReLU(), …, nn.Linear(…, 10))`",
    ),
    judge=judge,
)
