"""A model that takes bytes: scaling inside, logits out, new weights at each call."""

import contextlib
import io
from typing import Any

import torch
from torch import Tensor, nn

from labcheck.authoring import AnswerRaised, Exercise, Incorrect, Inputs, attempted, call, observe, wrong_if
from torchcourse.lab.targets import TARGETS


def saved_bytes(model: nn.Module) -> int:
    file = io.BytesIO()
    torch.save(model.state_dict(), file)
    return file.tell()


def largest_input(model: nn.Module, images: Tensor) -> float:
    """The largest number that the first layer with weights gets; 0 where that is a normalization."""
    first: list[float] = []

    def note(layer: nn.Module, inputs: tuple) -> None:
        if not first:
            first.append(0.0 if "Norm" in type(layer).__name__ else inputs[0].detach().float().abs().max().item())

    layers = [layer for layer in model.modules() if isinstance(getattr(layer, "weight", None), Tensor)]
    hooks = [layer.register_forward_pre_hook(note) for layer in layers]
    model(images)
    for hook in hooks:
        hook.remove()
    return first[0] if first else 0.0


def build(answer: Any, gray: Tensor, color: Tensor, order: Tensor) -> dict:
    """A probe. gray: uint8 [7, 1, 28, 28]; color: uint8 [7, 3, 32, 32]; order: int64 [7], another order of them."""
    if not (isinstance(answer, tuple) and len(answer) == 2 and answer[0] in ("mnist", "fashion_mnist", "cifar10")):
        return {"kind": "form"}
    name, make = answer
    attempted(make)
    images, models = color if name == "cifar10" else gray, []
    with torch.random.fork_rng(devices=[]):
        for seed in (0, 0, 1):
            torch.manual_seed(seed)
            models.append(call(make))
    model = models[0]
    if not isinstance(model, nn.Module):
        return {"kind": "no module"}
    if not any(parameter.requires_grad for parameter in model.parameters()):
        return {"kind": "no weights"}
    first, again, other = (torch.cat([p.detach().flatten().float() for p in m.parameters()]) for m in models)
    fresh = [models[0] is not models[2], model.training, first.equal(again), not first.equal(other)]
    seen = {"kind": "a model", "name": name, "fresh": fresh, "bytes": saved_bytes(model)}
    model.eval()
    with torch.no_grad():
        try:
            logits = model(images)
        except Exception as error:
            with contextlib.suppress(Exception):
                model(images.float())
                return {"kind": "takes floats"}
            raise AnswerRaised(error) from error
        single = model(images[:1])
        seen |= {"logits": logits, "single": single, "largest": largest_input(model, images)}
        shapes = [list(each.shape) if isinstance(each, Tensor) else None for each in (logits, single)]
        if shapes == [[7, 10], [1, 10]]:
            parts = order.split([1, 2, 4])
            seen |= {"again": model(images), "apart": torch.cat([model(images[part]) for part in parts])}
            seen["lowest"] = min(logits.min().item(), models[2].eval()(images).min().item())
    return seen


def are_ones(sums: Tensor) -> bool:
    return bool((sums - 1).abs().max() < 1e-3)


FRESH = ("a new network at each call", "train mode", "the same weights after the same seed", "others after another")


def judge(answer: Any, rng: Inputs) -> None:
    order = rng.permutation(7)
    seen = observe(answer, build, rng.images(7, 1, 28, 28), rng.images(7, 3, 32, 32), order)
    wrong_if(
        seen["kind"] == "form",
        "form",
        "Give the check the name of your data set and the function: (NAME, build_model).",
        look='NAME is "mnist", "fashion_mnist", or "cifar10"',
    )
    wrong_if(
        seen["kind"] == "no module",
        "no_module",
        "`build_model()` should return a model, an object of a class derived from nn.Module.",
        look="`return Net()`, with parentheses",
    )
    wrong_if(
        seen["kind"] == "no weights",
        "no_weights",
        "PyTorch finds no weights in your model that can learn. Layers in a Python list or dict are not part of it.",
        look="`nn.Sequential` or `nn.ModuleList` around the layers; `requires_grad`",
    )
    wrong_if(
        seen["kind"] == "takes floats",
        "takes_floats",
        "Your model takes floats, but images arrive as bytes (uint8). Callers should not have to prepare them.",
        look="turn them into floats in `forward`, or in a first layer",
    )
    logits, single = seen["logits"], seen["single"]
    for images, result in ((7, logits), (1, single)):
        wrong_if(
            not isinstance(result, Tensor) or result.shape != (images, 10),
            "shape",
            "The model should return logits: a row for each image, a column for each of the ten classes.",
            look="`squeeze()` also removes a batch of one",
            expected=f"shape [{images}, 10]",
            yours=f"shape {list(result.shape)}" if isinstance(result, Tensor) else result,
        )
    if logits.dtype != torch.float32:
        raise Incorrect("The logits should be float32.", yours=str(logits.dtype))
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
    if torch.allclose(logits[:1].expand_as(logits), logits, atol=1e-6):
        raise Incorrect("All images get the same logits.", look="what becomes of the images in `forward`")
    wrong_if(
        seen["lowest"] >= 0 or (logits.max() <= 0 and are_ones(logits.exp().sum(1))),
        "no_logits",
        "Your logits look like the output of a softmax, a log_softmax, a sigmoid, or a ReLU. Return what the last "
        "linear layer gives.",
        look="`cross_entropy` has a softmax inside, and a second one flattens the gradients",
    )
    stable = torch.allclose(seen["again"], logits, atol=1e-4)
    wrong_if(
        not stable or not torch.allclose(seen["apart"], logits[order], rtol=1e-3, atol=1e-3),
        "not_alone",
        "In eval mode, the logits of an image are different the second time, or depend on the other images.",
        look="`F.dropout` needs `training=self.training`; normalize with numbers that are known beforehand",
    )
    most = TARGETS[seen["name"]].bytes
    wrong_if(
        seen["bytes"] > most,
        "too_large",
        "Your weights alone take more bytes than the exported file may have.",
        look="where are the parameters? Usually in a linear layer after a large image",
        expected=f"{most:,} bytes or fewer",
        yours=f"{seen['bytes']:,} bytes",
    )


exercise = Exercise(
    title="A model that takes bytes",
    minutes=30,
    difficulty=2,
    points=3,
    takeaway="What is inside the model cannot be forgotten later: scaling and normalization travel with the weights.",
    hints=(
        "Start with the smallest network that could work: two convolutions and a linear layer.",
        "`images.float() / 255` belongs in `forward`. So do the mean and the standard deviation, "
        "or `models.Normalize(NAME)` as the first layer.",
        "`return nn.Sequential(models.Normalize(NAME), nn.Conv2d(1, 16, 5, stride=2), nn.ReLU(), …, nn.Flatten(), "
        "nn.Linear(…, 10))`",
    ),
    judge=judge,
)
