"""A module that works wherever it is put: a buffer, a list of modules, and new tensors where the input is."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from labcheck.authoring import Exercise, Incorrect, Inputs, call, equal, observe, raises_like, same, wrong_if
from torchcourse import simgpu
from torchcourse_labs.cpu_to_gpu._shared import busiest_line, device_work


class solution(nn.Module):
    def __init__(self, mean, members):
        super().__init__()
        self.register_buffer("mean", mean)
        networks = [nn.Sequential(nn.Linear(len(mean), 16), nn.ReLU(), nn.Linear(16, 10)) for _ in range(members)]
        self.members = nn.ModuleList(networks)

    def forward(self, x):
        x = x.flatten(1) - self.mean
        total = torch.zeros(len(x), 10, device=x.device)
        for member in self.members:
            total += member(x)
        return total / len(self.members)


def parts(answer: Callable, mean: Tensor, members: int) -> dict[str, Any]:
    """A probe: what a new model consists of."""
    model = None if isinstance(answer, nn.Module) else call(answer, mean, members, may_return_none=True)
    if not isinstance(model, nn.Module):
        return {}
    learned = sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad)
    return {"learned": learned, "state": [value.detach() for value in model.state_dict().values()]}


def moved(answer: Callable, mean: Tensor, members: int, images: Tensor, seed: int, stay: bool) -> list:
    """A probe: what a model returns on the device, or back on the CPU, and what travels meanwhile."""
    torch.manual_seed(seed)
    model, place = call(answer, mean, members).to(simgpu.accelerator()), torch.device("cpu")
    model, images = (model, images.to(simgpu.accelerator())) if stay else (model.to(place), images)
    result, work = device_work(model, given := images.clone())
    at_home = isinstance(result, Tensor) and result.device == images.device
    return [result.detach().cpu() if at_home else None, work["to device"], not given.equal(images)]


def judge(answer: Any, rng: Inputs) -> None:
    members, (height, width), seed = rng.size(2, 4), rng.sizes(2, 3, 6), rng.size(0, 10**6)
    mean, images = rng.randn(height * width), rng.randn(rng.size(5, 9), 1, height, width)
    seen, expected = observe(answer, parts, mean, members), members * (len(mean) * 16 + 16 + 16 * 10 + 10)
    look = "`check(…, Ensemble)`, the class without parentheses; it is a subclass of `nn.Module`"
    wrong_if(not seen, "no_module", "The check needs your class, which makes models.", look=look)
    wrong_if(
        seen["learned"] in (0, len(mean)),
        "hidden",
        "The model doesn't know its layers: `parameters()` has none of their weights, and `.to` leaves them behind.",
        look="modules in a plain list are hidden; `nn.ModuleList` is a list that the model knows",
    )
    look = '`self.register_buffer("mean", mean)`: a buffer moves and is saved, but is not learned'
    learns = seen["learned"] == expected + len(mean)
    wrong_if(learns, "mean_learns", "The mean is a parameter that learns: an optimizer would change it.", look=look)
    own = "`members` networks, each Linear(N, 16), ReLU, Linear(16, 10), N = `len(mean)`; `[network] * 2` is only one"
    same(seen["learned"], expected, "The count of numbers that the model learns", look=own)
    saved = any(equal(value, mean) for value in seen["state"])
    wrong_if(not saved, "not_saved", "The mean, as it was given, is not in `state_dict()`: it isn't saved.", look=look)
    torch.manual_seed(seed)
    right = solution(mean, members)(images).detach()
    for place in ("back on the CPU", "on the device"):
        with raises_like(
            "elsewhere",
            f"Two devices meet in `forward` when the model and its input are {place}.",
            "same device",
            "on cpu",
            look="what `forward` creates belongs to `x.device`; a plain attribute that is a tensor stays behind",
        ):
            result, travels, changed = observe(answer, moved, mean, members, images, seed, place == "on the device")
        if result is None:
            raise Incorrect(f"When a model and its input are {place}, the logits should be there, too.")
        wrong_if(changed, "changes_x", "Your `forward` changes its `x`: after `flatten`, a view, `-=` does.")
        look = "each network: Linear, ReLU, Linear; the mean of all their logits (after the loop) for `x` minus `mean`"
        same(result, right, f"What a model returns when it is {place}", look=look)
        look = f"{busiest_line(travels)}; with `device=x.device`, a new tensor is made there"
        wrong_if(travels, "travels", "In each call, something travels from the CPU to the device.", look=look)


exercise = Exercise(
    seconds=20.0,  # the practice GPU starts in it
    title="A module for any device",
    minutes=7,
    difficulty=2,
    points=2,
    takeaway="`.to` moves what the module knows: parameters, buffers, and modules. The rest follows the input.",
    hints=(
        "Three things stay behind: a plain tensor, layers in a plain list, and what `forward` creates.",
        "`self.register_buffer(...)`, `nn.ModuleList([...])`, and `torch.zeros(len(x), 10, device=x.device)`.",
    ),
    judge=judge,
    lends=solution,
)
