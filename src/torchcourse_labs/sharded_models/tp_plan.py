"""A plan for tensor parallelism: which layers of a transformer are cut by outputs, and which by inputs."""

import copy
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Replicate
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    ParallelStyle,
    PrepareModuleInput,
    RowwiseParallel,
    parallelize_module,
)

from labcheck import ranks
from labcheck.authoring import Exercise, Inputs, same, wrong_if
from torchcourse import models
from torchcourse.cluster import planning

HEADS = 4
BY_OUTPUTS, BY_INPUTS = ("attention.query", "attention.key", "attention.value", "up"), ("attention.out", "down")


def solution(model: nn.Module, ranks: int) -> dict[str, ParallelStyle]:
    attention = model.blocks[0].attention
    heads = attention.query.out_features // attention.head_width
    if heads % ranks:
        raise ValueError(f"{heads} heads cannot be divided among {ranks} ranks")
    once = PrepareModuleInput(input_layouts=Replicate(), desired_input_layouts=Replicate())
    plan = {}
    for i in range(len(model.blocks)):
        plan[f"blocks.{i}.attention"] = once
        for name in ("attention.query", "attention.key", "attention.value", "up"):
            plan[f"blocks.{i}.{name}"] = ColwiseParallel()
        for name in ("attention.out", "down"):
            plan[f"blocks.{i}.{name}"] = RowwiseParallel()
    return plan


def settings(model: nn.Module) -> tuple:
    return repr(model), [getattr(module, "head_width", None) for module in model.modules()]


def error_of(answer: Any, *given: Any) -> str:
    try:
        answer(*given)
    except Exception as error:
        return type(error).__name__
    return "no error"


def on_rank(answer: Any, model: nn.Module, images: Tensor, refused: list[int]) -> dict:
    """The answer's plan for a model on two ranks, and what a step with it computes and sends."""
    before, plan = settings(model), answer(model, 2)
    if not isinstance(plan, dict):
        return {"returned": plan}
    seen = {"changed": settings(model) != before, "error": "", "gradients": {}}
    seen["refused"] = [error_of(answer, model, number) for number in refused]
    parallelize_module(model, init_device_mesh("cpu", (2,)), plan)
    cut = {n: p for n, p in model.named_parameters() if isinstance(p, DTensor) and p.to_local().shape != p.shape}
    seen["cut"] = {n.removesuffix(".weight"): p.placements[0].dim for n, p in cut.items() if n.endswith("weight")}
    try:
        with planning.messages() as forward:
            output = model(images)
        with planning.messages() as backward:
            output.square().mean().backward()
    except RuntimeError as error:
        return {**seen, "error": str(error).splitlines()[0]}
    for name, p in model.named_parameters():
        seen["gradients"][name] = p.grad.full_tensor() if isinstance(p.grad, DTensor) else p.grad
    seen |= {"forward": dict(forward.counts), "backward": dict(backward.counts)}
    return {**seen, "output": "a DTensor" if isinstance(output, DTensor) else output.detach()}


def judge(answer: Any, rng: Inputs) -> None:
    depth, refused = rng.size(2, 3), [HEADS - 1, 2 * HEADS]  # 2 * HEADS divides the width
    model = models.Patches(width=6 * HEADS, depth=depth, heads=HEADS)  # a head's width that tells it from their number
    for parameter in model.parameters():
        parameter.data = parameter.data + 0.1 * rng.randn(*parameter.shape)
    images = rng.randn(3, 1, 28, 28)
    seen = ranks.observe(
        answer, on_rank, copy.deepcopy(model), images, refused, look="the plan is the same on all ranks"
    )
    for each in seen:
        judge_plan(each, refused)
        judge_cut(each["cut"], depth)
        judge_step(each, model, images, {"all-reduce": 2 * depth})


def judge_plan(seen: dict, refused: list[int]) -> None:
    wrong_if("returned" in seen, "no_dict", "Your function should return the plan, a dict.", yours=seen.get("returned"))
    wrong_if(
        seen["changed"],
        "model_changed",
        "Your function changes the model. Only return the plan: `parallelize_module` does the rest.",
    )
    wrong_if(
        seen["refused"] != ["ValueError"] * 2,
        "heads",
        f"{HEADS} heads cannot be divided among {refused[0]} or {refused[1]} ranks: both should raise a ValueError.",
        look="the remainder of the number of heads, `query.out_features // head_width`, by the number of ranks",
        yours=seen["refused"],
    )


def judge_cut(cut: dict[str, int], depth: int) -> None:
    """cut: name -> axis along which the weight of this layer is cut, 0 for outputs, 1 for inputs"""
    right = {f"blocks.{i}.{name}": 0 for i in range(depth) for name in BY_OUTPUTS}
    right |= {f"blocks.{i}.{name}": 1 for i in range(depth) for name in BY_INPUTS}
    missing = [name for name in right if name not in cut]
    wrong_if(
        missing,
        "still_whole",
        f"Some layers are still whole: six in each of the {depth} blocks should be cut.",
        look='whole names, such as "blocks.0.attention.query": those of `model.named_modules()`, for each block',
        yours=f"{', '.join(missing[:4])}{', …' * (len(missing) > 4)}",
    )
    same([name for name in cut if name not in right], [], "The list of layers that are cut, but should stay whole,")
    wrong_if(
        cut != right,
        "other_way_around",
        "Some layers are cut the other way around. The first layer of a pair is cut by outputs, and leaves its output "
        "in parts; the second takes these parts, and is cut by inputs.",
        look="`ColwiseParallel` for the first layer of a pair, `RowwiseParallel` for the second",
        yours=", ".join([name for name in cut if name.startswith("blocks.0") and cut[name] != right[name]]),
    )


def judge_step(seen: dict, model: nn.Module, images: Tensor, messages: dict) -> None:
    wrong_if(
        seen["error"],
        "parts_do_not_fit",
        "The parts do not fit together.",
        look="after a layer cut by outputs, each rank has its part of the numbers: the next layer takes just these, "
        "and its output is whole again on all ranks",
        yours=seen["error"],
    )
    look = "which layouts do the layers take, and which do they leave? Those of a plan without arguments fit together"
    expected = model(images)
    same(seen["output"], expected.detach(), "The output", rtol=1e-3, look=look)
    joined = "what is joined after the first layer of a pair is cut again for the second: leave it in parts"
    same(seen["forward"], messages, "The messages of the forward pass", look=joined)
    gradients = torch.autograd.grad(expected.square().mean(), [*model.parameters()])
    for (name, _), gradient in zip(model.named_parameters(), gradients, strict=True):
        same(seen["gradients"][name], gradient, f"The gradient of `{name}`", rtol=1e-3, look=look)
    wrong_if(
        seen["backward"].get("all-reduce", 0) > messages["all-reduce"],
        "input_not_prepared",
        "The output is right, but the backward pass sends more than two messages for each block: query, key, and value "
        "each send the gradient of the same input.",
        look="`PrepareModuleInput` for the attention as a whole",
        expected=messages,
        yours=seen["backward"],
    )
    same(seen["backward"], messages, "The messages of the backward pass")


exercise = Exercise(
    title="Cut the layers",
    minutes=12,
    difficulty=3,
    points=3,
    takeaway="First by outputs, then by inputs: what one rank makes in the first layer is what it needs in the second, "
    "so two layers need one message.",
    hints=(
        "Two pairs of layers in each block: query, key, and value before `out`; `up` before `down`. Cut the first of a "
        "pair by outputs, the second by inputs.",
        'The names are those of `model.named_modules()`: `plan[f"blocks.{i}.up"] = ColwiseParallel()` and '
        '`plan[f"blocks.{i}.down"] = RowwiseParallel()`. Norms, the first and the last layer stay whole.',
        "Query, key, and value each send a message in the backward pass, unless their input is prepared once: "
        '`plan[f"blocks.{i}.attention"] = PrepareModuleInput(input_layouts=Replicate(), '
        "desired_input_layouts=Replicate())`.",
    ),
    judge=judge,
    seconds=120.0,  # the first check of a session starts a server, which makes the processes
)
