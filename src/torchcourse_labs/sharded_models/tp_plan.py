"""A plan for tensor parallelism: which layers of a transformer are cut by outputs, and which by inputs."""

import copy
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Replicate
from torch.distributed.tensor.parallel import ColwiseParallel, PrepareModuleInput, RowwiseParallel, parallelize_module

from labcheck import ranks
from labcheck.authoring import Exercise, Incorrect, Inputs, same, wrong_if
from torchcourse import models
from torchcourse.cluster import planning

HEADS, REFUSED = 4, (3, 8)  # ranks for that many heads; 8 divides the width
BY_OUTPUTS, BY_INPUTS = ("attention.query", "attention.key", "attention.value", "up"), ("attention.out", "down")


def solution(model: nn.Module, ranks: int) -> dict[str, Any]:
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


def settings(model: nn.Module) -> str:
    return f"{model} {[getattr(module, 'head_width', None) for module in model.modules()]}"


def error_of(answer: Any, *given: Any) -> str:
    try:
        answer(*given)
    except Exception as error:
        return type(error).__name__
    return "no error"


def on_rank(answer: Any, model: nn.Module, images: Tensor) -> dict:
    """The answer's plan for a model on two ranks, and what a step with it computes and sends."""
    before, plan = settings(model), answer(model, 2)
    if not isinstance(plan, dict):
        return {"plan": plan}
    seen = {"changed": settings(model) != before, "refused": [error_of(answer, model, number) for number in REFUSED]}
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
    gradients = {n: p.grad for n, p in model.named_parameters()}
    gradients = {n: g.full_tensor() if isinstance(g, DTensor) else g for n, g in gradients.items()}
    output = "a DTensor" if isinstance(output, DTensor) else output.detach()
    seen |= {"forward": dict(forward.counts), "backward": dict(backward.counts)}
    return {**seen, "error": "no error", "output": output, "gradients": gradients}


def judge(answer: Any, rng: Inputs) -> None:
    depth = rng.size(2, 3)
    model = models.Patches(width=6 * HEADS, depth=depth, heads=HEADS)  # a head's width that tells it from their number
    for parameter in model.parameters():
        parameter.data = parameter.data + 0.1 * rng.randn(*parameter.shape)
    images, look = rng.randn(3, 1, 28, 28), "the plan is the same on all ranks"
    seen = ranks.observe(answer, on_rank, copy.deepcopy(model), images, look=look)[0]
    if "plan" in seen:
        raise Incorrect("Your function should return the plan.", "a dict", seen["plan"])
    if seen["changed"]:
        raise Incorrect("Your function changes the model. Only return the plan: `parallelize_module` does the rest.")
    wrong_if(
        seen["refused"] != ["ValueError"] * 2,
        "heads",
        f"{HEADS} heads cannot be divided among {REFUSED[0]} or {REFUSED[1]} ranks: both should raise a ValueError.",
        look="the remainder of the number of heads, `query.out_features // head_width`, by the number of ranks",
        yours=seen["refused"],
    )
    right = {f"blocks.{i}.{name}": 0 for i in range(depth) for name in BY_OUTPUTS}
    right |= {f"blocks.{i}.{name}": 1 for i in range(depth) for name in BY_INPUTS}
    look = 'six in each block, by whole names such as "blocks.0.attention.query": those of `model.named_modules()`'
    same([name for name in right if name not in seen["cut"]], [], "The list of layers that are still whole", look=look)
    same([name for name in seen["cut"] if name not in right], [], "The list of layers that are cut, but should not be,")
    wrong_if(
        seen["cut"] != right,
        "other_way_around",
        "Some layers are cut the other way around. The first layer of a pair is cut by outputs, and leaves its output "
        "in parts; the second takes these parts, and is cut by inputs.",
        look="`ColwiseParallel` for the first layer of a pair, `RowwiseParallel` for the second",
        yours=", ".join([name for name in right if name.startswith("blocks.0") and seen["cut"][name] != right[name]]),
    )
    judge_step(seen, model, images, {"all-reduce": 2 * depth})


def judge_step(seen: dict, model: nn.Module, images: Tensor, messages: dict) -> None:
    look = "the first layer of a pair leaves its output in parts, and the second takes these: name no layouts for them"
    same(seen["error"], "no error", "The error of a step with your plan", look=look)
    expected = model(images)
    same(seen["output"], expected.detach(), "The output", rtol=1e-3, look=look)
    same(seen["forward"], messages, "The number of messages in the forward pass", look=look)
    gradients = torch.autograd.grad(expected.square().mean(), [*model.parameters()])
    for (name, _), gradient in zip(model.named_parameters(), gradients, strict=True):
        same(seen["gradients"][name], gradient, f"The gradient of `{name}`", rtol=1e-3, look=look)
    wrong_if(
        seen["backward"] != messages,
        "input_not_prepared",
        "The output is right, but the backward pass doesn't send two messages for each block: query, key, and value "
        "should not each send the gradient of the same input.",
        look="`PrepareModuleInput` for the attention as a whole",
        expected=messages,
        yours=seen["backward"],
    )


exercise = Exercise(
    title="Cut the layers",
    minutes=12,
    difficulty=3,
    points=3,
    takeaway="First by outputs, then by inputs: a rank makes what it needs next, so two layers need one message.",
    hints=(
        "Query, key, and value before `out`, and `up` before `down`: the first of a pair is cut by outputs, "
        '`plan[f"blocks.{i}.up"] = ColwiseParallel()`, the second by inputs, `RowwiseParallel()`.',
        "Query, key, and value each send a message in the backward pass, unless their input is prepared once: "
        '`plan[f"blocks.{i}.attention"] = PrepareModuleInput(input_layouts=Replicate(), '
        "desired_input_layouts=Replicate())`.",
    ),
    judge=judge,
    seconds=ranks.SECONDS,
)
