"""The exercises of chapter 04: convolution by hand, a network to a budget, a data set, going on exactly."""

import copy
import functools
import io
import math  # noqa: F401 - for the tables
import re
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.optim.optimizer import register_optimizer_step_pre_hook
from torch.utils.data import DataLoader, Dataset

from labcheck import probes
from labcheck.answer import attempted, call
from labcheck.compare import equal
from labcheck.inputs import Inputs
from labcheck.probes import SLOW_START, Batch, weights
from torchcourse import data
from torchcourse_labs._spec import Habit, Raised, Spec, changed, chapter, says  # noqa: F401 - says: for the tables

BUDGET = 20_000  # parameters of small_net
STEPS = 80  # batches that train_garments gets
ENOUGH = 0.65  # accuracy after so few steps: sound trainings are above, real garments or drawn, unsound ones far below

# Ends of sentences: the numbers of the case.
GIVEN = "With n = {n}, kernel = {kernel}, stride = {stride}, padding = {padding} it is {expected}, yours was {yours}."
OF_LAYERS = "With {layers} it is {expected}, yours was {yours}."

CHAPTER = "04_mnist_cnn"
EXERCISES = ("conv_size", "convolve", "receptive_field")

exercise = chapter("04_mnist_cnn")


# ---------------------------------------------------------------------------------------------------------------------


class _Network(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 8, 3, padding=1)
        self.conv2 = nn.Conv2d(8, 16, 3, padding=1)
        self.dropout = nn.Dropout(0.2)
        self.last = nn.Linear(16 * 7 * 7, 10)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.conv1(x)), 2)
        x = F.max_pool2d(F.relu(self.conv2(x)), 2).flatten(1)
        return self.last(self.dropout(x))


def _with_norm() -> nn.Module:
    layers: list[nn.Module] = []
    for inputs, outputs in ((1, 16), (16, 32), (32, 32)):
        layers += [nn.Conv2d(inputs, outputs, 3, stride=2, padding=1), nn.BatchNorm2d(outputs), nn.ReLU()]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 10))


def _short(*between: nn.Module, classes: int = 10) -> Callable:
    return lambda: nn.Sequential(nn.Conv2d(1, 8, 3, stride=3), *between, nn.Flatten(), nn.Linear(8 * 81, classes))


def _rows_of_another_batch(yours: Any, images: Tensor) -> bool:
    """Tell whether a product, or a `view`, failed because the rows are not those of the images."""
    if not isinstance(yours, Raised):
        return False
    if viewed := re.search(r"shape '\[(\d+), .* is invalid for input of size", yours.message):
        return int(viewed[1]) != len(images)
    rows = re.search(r"shapes cannot be multiplied \((\d+)x", yours.message)
    return bool(rows) and (int(rows[1]) % len(images) > 0 or len(images) == 1 < int(rows[1]))


def _look_at_network(answer: Any, images: Tensor, labels: Tensor, seed: int) -> dict[str, Any]:
    """Make networks, and see what they do with these images."""
    torch.manual_seed(seed)
    attempted(answer)
    model = answer if isinstance(answer, nn.Module) else call(answer, may_return_none=True)
    if model is answer or not isinstance(model, nn.Module):
        return {"instead": model}
    ask = partial(call, lambda given: model(given), may_return_none=True)
    model.cpu().eval()
    seen: dict[str, Any] = {"hidden": _hidden_layers(model), "logits": ask(images)}
    if _form(seen["logits"]) != ((len(images), 10), torch.float32):
        return seen
    others = 2 * images.flip(3)
    given = {"again": images, "zero": 0 * images, "others": others, "sum": images + others}
    seen |= {name: ask(each) for name, each in given.items()}
    seen["in company"] = ask(torch.cat([others, images, others]))[len(images) : -len(images)]
    seen["operations"] = probes.operations(model, images)
    sizes = {name: parameter.numel() for name, parameter in nn.Module.named_parameters(model)}  # of no subclass
    seen |= {"total": sum(sizes.values()), "largest": max(sizes.items(), key=lambda item: item[1], default=None)}
    loss = F.cross_entropy(call(model.train(), torch.cat([images, others])), torch.cat([labels, labels]))
    if loss.requires_grad:
        loss.backward()
        learning = [(name, each.grad) for name, each in model.named_parameters() if each.requires_grad]
        seen["asleep"] = [name for name, gradient in learning if gradient is None]
    seen["amplified"] = torch.cat([_amplified(call(answer), images) for _ in range(3)])
    return seen


def _amplified(model: nn.Module, images: Tensor) -> Tensor:
    """Logits with large weights: if something squashes them, it shows."""
    model.cpu().eval()
    with torch.no_grad():
        model(images)  # lazy layers get their weights
        for parameter in model.parameters():
            parameter.mul_(5).add_(torch.randn_like(parameter))
        return model(10 * images)


def _hidden_layers(model: nn.Module) -> str | None:
    """The attribute in which layers are that PyTorch doesn't see."""
    for name, value in vars(model).items():
        parts = value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else ()
        if not name.startswith("_") and any(isinstance(part, nn.Module) for part in parts):
            return name
    return None


def _differ(one: Tensor, other: Tensor) -> bool:
    return not torch.allclose(one, other, rtol=1e-4, atol=1e-4, equal_nan=True)


def _is_softmax(logits: Tensor) -> bool:
    """Tell whether these are probabilities or their logarithms."""
    numbers = logits if (logits >= 0).all() else logits.exp()
    return any(not _differ(numbers.sum(axis), torch.ones(())) for axis in (0, 1))


exercise(
    "small_net",
    seconds=SLOW_START,
    title="A network within a budget",
    minutes=10,
    difficulty=3,
    points=3,
    takeaway="Shrink the image before you flatten it: in a small network, most parameters are in the first linear "
    "layer.",
    hints=(
        "Two or three convolutions, each followed by ReLU and something that halves the image; then flatten, then one "
        "linear layer.",
        "Count: a convolution has out · in · k · k + out parameters, a linear layer out · in + out. With 16 channels "
        "of 7 × 7 pixels, the last layer has 7,850.",
        "`nn.Conv2d(1, 8, 3, padding=1)`, ReLU, `nn.MaxPool2d(2)`, `nn.Conv2d(8, 16, 3, padding=1)`, ReLU, "
        "`nn.MaxPool2d(2)`, `nn.Flatten()`, `nn.Linear(16 * 7 * 7, 10)`.",
    ),
    spec=Spec(
        draw=lambda new: [
            (new.randn(b, 1, 28, 28), new.ints(0, 10, (b,)), new.size(0, 10**6)) for b in (new.pick([3, 5, 6, 7, 9]), 1)
        ],
        solution=_Network,
        probe=_look_at_network,
        free=True,
        finds={},  # nothing is compared with a result of the solution, so no check runs it
        mistakes="""
            nn.Flatten()
            lambda: [nn.Flatten(), nn.Linear(784, 10)]
                The check needs your class, or a function that makes networks. What it got is {yours[instead]}.
                look: `check(…, SmallNet)`, without parentheses; a function has to return an nn.Module
                when: "instead" in yours
            super().__init__() → pass || self.last = nn.Linear(784, 10); super().__init__()
                `super().__init__()` is missing: it comes before the first layer, so that PyTorch can register it.
                when: says(yours, "before Module.__init__", "no attribute '_modules'")
            def forward → def foward
                Your class has no method `forward`, so it cannot do anything with an image.
                look: the spelling of its name; it is indented like `__init__`
                when: says(yours, 'required "forward" function')
            self.conv2 = → self.more = 2 * [None]; self.more[1] = && self.conv2( → self.more[1](
                The layers in `self.{yours[hidden]}` are in a plain list or dict: no optimizer will find them.
                look: make them attributes, or use `nn.Sequential` or `nn.ModuleList`
                when: yours["hidden"]
            .flatten(1) → .view(64, -1) || .reshape(32, -1)
                The rows that reach your linear layer are not the {images.shape[0]} images of this batch. Is a batch
                size written into a `view` or `reshape`?
                look: `x.flatten(1)` leaves the images alone, however many there are
                when: _rows_of_another_batch(yours, images)
            return self.last → self.last
            self.last(self.dropout(x)) → self.last(x).max(dim=1) || self.last(x).tolist()
                `forward` should return one tensor of logits. It returned {yours[logits]}.
                look: `return` at the end of `forward`
                when: not isinstance(yours["logits"], Tensor)
            self.last(self.dropout(x)) → self.last(x).argmax(dim=1) || self.last(x).amax(1, keepdim=True)
                Your network returns one number for each image, as `argmax` does. The loss needs all ten logits.
                look: the last line of `forward`, and the size of the last layer
                when: yours["logits"].numel() == len(images)
            self.last(self.dropout(x)) → self.last(x).mean(0) || self.last(x).squeeze() || self.last(x).t()
            (16 * 7 * 7, 10) → (392, 10) && .flatten(1) → .view(-1, 392)
                The batch got lost: each image should have a row of ten logits, here ({images.shape[0]}, 10) in all, and
                yours have the shape {yours[logits].shape}.
                look: `flatten(1)` leaves the batch alone; `flatten(0)`, `view(-1, …)` and `squeeze()` do not
                when: yours["logits"].dim() < 2 or len(yours["logits"]) != len(images)
            _short(nn.ReLU(), classes=9)
            lambda: nn.Sequential(nn.Conv2d(1, 8, 8, 4), nn.ReLU(), nn.Conv2d(8, 10, 6))
            self.last(self.dropout(x)) → self.last(x).double() || self.last(x).half()
                The logits should be float32 of shape ({images.shape[0]}, 10); yours are {yours[logits]}.
                look: the last layer: ten outputs for each image, after `flatten(1)`, and no other dtype
                when: yours["logits"].shape[1:] != (10,) or yours["logits"].dtype != torch.float32
            self.last(self.dropout(x)) → self.last(x).log() || self.last(x) / 0
                Some of your logits are nan or infinite.
                look: a logarithm, a root or a division in `forward`
                when: not yours["logits"].isfinite().all()
            (self.dropout(x)) → (x).softmax(1) || (x).softmax(0) || (x).log_softmax(1)
                There is a softmax or log_softmax at the end. The loss has one inside: return the logits themselves.
                look: the last line of `forward`, or the last layer in `__init__`
                when: _is_softmax(yours["logits"])
            self.last(self.dropout(x)) → self.last(x).sigmoid() || self.last(x).tanh() || self.last(x).relu()
                A nonlinearity (ReLU, sigmoid, tanh …) follows the last layer. Logits may be any numbers.
                look: the last line of `forward`, or the last layer in `__init__`
                when: (yours["amplified"].abs() <= 1).all() or yours["amplified"].min() == 0 < yours["amplified"].max()
            self.last(self.dropout(x)) → self.last(F.dropout(x, 0.2)) || nn.Linear(784, 10)(x)
                In eval mode, the same images get different logits the second time: something is drawn at random.
                look: `F.dropout` does not know the mode: use `nn.Dropout`. Layers belong in `__init__`
                when: _differ(yours["logits"], yours["again"])
            self.last(self.dropout(x)) → self.last(x - x.mean(0)) || self.last(x) / self.last(x).max()
                The logits of an image depend on the other images of its batch.
                look: each reshape, mean and maximum in `forward`: axis 0 is the batch
                when: _differ(yours["logits"], yours["in company"])
            lambda: nn.Sequential(nn.Flatten(), nn.Linear(784, 20), nn.ReLU(), nn.Linear(20, 10))
                There is no convolution in your network.
                look: at least one `nn.Conv2d`, used in `forward`
                when: not any("conv" in name for name in yours["operations"])
            _short()
            _short(nn.Dropout(0.1), nn.BatchNorm2d(8), nn.AvgPool2d(1))
                Your network is linear from end to end, and could be replaced by a single layer: there is no ReLU.
                look: something nonlinear between the layers: `nn.ReLU()` after each convolution
                when: _differ(yours["logits"], yours["zero"]) and not _differ(yours["logits"] + yours["others"],
                    yours["sum"] + yours["zero"])
            _short(nn.ReLU(), nn.Conv2d(8, 8, 1), nn.Flatten(), nn.Linear(8 * 81, 8 * 81))
                Your network has {yours[total]:,} parameters, over the budget of 20,000. `{yours[largest][0]}` alone has
                {yours[largest][1]:,}.
                look: halve the image once more before you flatten it, or use fewer channels
                when: yours["total"] > BUDGET
            self.last(self.dropout(x)) → self.last(x).detach()
            nn.Linear(16 * 7 * 7, 10) → nn.Linear(784, 10); self.requires_grad_(False)
                Nothing in your network can learn: no gradient flows through it.
                look: `no_grad`, `detach`, `requires_grad_(False)`
                when: "asleep" not in yours
            nn.Linear(16 * 7 * 7, 10) → nn.Linear(784, 10); self.more = nn.Conv2d(8, 8, 3)
            self.last(self.dropout(x)) → self.last(x.detach())
                `{yours[asleep][0]}` gets no gradient: `forward` does not use that layer, or cuts it off.
                look: every layer of `__init__`; `detach` and `no_grad` in `forward`
                when: yours["asleep"]
        """,
        also_right=[
            _with_norm,
            changed(_Network, ("7 * 7, 10)", "7 * 7, 10); nn.init.zeros_(self.last.weight)")),
            lambda: nn.Sequential(nn.Conv2d(1, 10, 7, bias=False), nn.AdaptiveMaxPool2d(1), nn.Flatten()),
            lambda: nn.Sequential(nn.LazyConv2d(8, 5), nn.MaxPool2d(4), nn.Flatten(), nn.LazyLinear(10)),
        ],
    ),
)


# ---------------------------------------------------------------------------------------------------------------------


LENGTH, IMAGES, LABELS = "The length of your data set", "The stack of your images", "The list of your labels"
PLAIN = "Without a transform, the image of sample 1"


class Transform:
    """Adds a number that is different in every call, and remembers what it is given."""

    def __init__(self) -> None:
        self.given: list[Any] = []

    def __call__(self, image: Any) -> Any:
        self.given.append(image)
        return image.float() / 255 + len(self.given) if isinstance(image, Tensor) else image


def _look_at_samples(answer: Any, images: Tensor, labels: Tensor, order: list[int]) -> dict[str, Any]:
    """Make a data set and ask for samples in this order, and for the first one again; then without a transform."""
    stored, transform = images.clone(), Transform()
    ds = call(answer, stored, labels.clone(), transform, may_change=True)
    for name in ("__len__", "__getitem__"):
        if getattr(type(ds), name, None) in (None, getattr(Dataset, name, None)):  # Dataset's own only raises
            return {"absent": name}
    seen: dict[str, Any] = {"calls when made": len(transform.given), LENGTH: call(lambda: len(ds)), "calls": []}
    pairs = []
    for index in [*order, order[0]]:
        before, random_state = len(transform.given), torch.get_rng_state()
        sample = call(lambda index=index: ds[index], may_return_none=True)
        seen["random"] = seen.get("random") or not torch.equal(random_state, torch.get_rng_state())
        seen["calls"].append(len(transform.given) - before)
        if not isinstance(sample, tuple | list) or len(sample) != 2:
            return seen | {"no pair": sample}
        pairs.append(sample)
    seen["calls"] = next((calls for calls in seen["calls"] if calls != 1), 1)
    seen["changed"] = not torch.equal(stored, images)
    seen["not an image"] = [each for each in transform.given if _form(each)[:1] != _form(images[0])[:1]][:1]
    if seen["not an image"]:
        return seen
    seen["no label"] = [label for _, label in pairs if not _is_whole(label)][:1]
    seen[LABELS] = [int(label) for _, label in pairs if _is_whole(label)]
    same_kind = len({getattr(image, "shape", None) for image, _ in pairs}) == 1 and isinstance(pairs[0][0], Tensor)
    seen[IMAGES] = torch.stack([image for image, _ in pairs]) if same_kind else pairs[0][0]
    plain = call(answer, images, labels)
    seen[PLAIN] = call(lambda: plain[1][0])
    seen["The row of labels in a batch made by DataLoader"] = call(lambda: next(iter(DataLoader(plain, 4)))[1])
    return seen


def _is_whole(label: Any) -> bool:
    if isinstance(label, Tensor):
        return label.dim() == 0 and not label.is_floating_point() and label.dtype != torch.bool
    return isinstance(label, int | np.integer) and not isinstance(label, bool)


def _form(value: Any) -> Any:
    return (value.shape, value.dtype) if isinstance(value, Tensor) else (type(value),)


class _Samples(Dataset):
    def __init__(self, images, labels, transform=None):
        self.images, self.labels, self.transform = images, labels, transform

    def __len__(self):
        return len(self.images)

    def __getitem__(self, index):
        image = self.images[index]
        if self.transform:
            image = self.transform(image)
        return image, int(self.labels[index])


exercise(
    "image_dataset",
    title="Your own Dataset",
    minutes=8,
    difficulty=2,
    points=2,
    takeaway="Two methods make a data set. The transform runs each time you ask for a sample, so a random one stays "
    "random.",
    hints=(
        "Keep the three arguments in `__init__`; nothing else happens there.",
        "`__getitem__` takes one image, applies the transform if there is one, and returns the image with its label.",
        "`image = self.images[index]`, `if self.transform: image = self.transform(image)`, "
        "`return image, int(self.labels[index])`.",
    ),
    spec=Spec(
        draw=lambda new: [
            (new.images(n, 1, *new.sizes(2, 4, 8)), new.permutation(n) % 10, new.permutation(n).tolist())
            for n in [new.size(11, 16)]
        ],
        solution=_Samples,
        probe=_look_at_samples,
        look="a sample is the transform of `self.images[index]`, just as it is stored, and `self.labels[index]`",
        mistakes=r"""
            __len__ → length
            __getitem__ → get
            = zip(images, labels, strict=True)
                A data set needs the method `{yours[absent]}`, and yours does not have it.
                look: two underscores on either side of the name; it is indented like `__init__`
                when: "absent" in yours
            if self.transform: → if True:
                `transform` may be None, and your data set calls it anyway.
                look: `if self.transform is not None:`
                when: says(yours, "'NoneType' object is not callable")
            image, int(self.labels[index]) → image || {'image': image}
            return image, int(self.labels[index]) → (image, int(self.labels[index]))
                A sample should be the pair (image, label); yours is {yours[no pair]}.
                look: `return` in `__getitem__`
                when: "no pair" in yours
            = images, → = transform(images) if transform else images,
            self.transform(image) → self.transform(self.images)[index]
            self.transform(image) → torch.tensor(self.transform(image.numpy()) / 255)
                The transform takes one image at a time, a tensor [C, H, W]. It got {yours[not an image][0]}.
                look: where you call the transform
                when: yours["not an image"]
            = images, → = [transform(image) if transform else image for image in images],
                The transform already ran when the data set was made, {yours[calls when made]} times. A random one would
                be random only once.
                look: `__init__`: keep the transform, and call it in `__getitem__`
                when: yours["calls when made"]
            return image, int(self.labels[index]) → self.images[index] = 0; return image, int(self.labels[index])
                The stored images have changed: in the next epoch, they will be different ones.
                look: whatever works in place: a method that ends in an underscore, `+=`, an assignment to a slice
                when: yours["changed"]
            image = self.images[index] → torch.manual_seed(index); image = self.images[index]
                Your `__getitem__` seeds the random numbers of the whole program, so a random transform would do the
                same thing to this sample in every epoch.
                look: `torch.manual_seed`: seed once, at the start of the program, not in a data set
                when: yours["random"]
            len(self.images) → len(self.images[0]) || len(self.images) - 1
                The length of your data set is {yours[{LENGTH}]}; it should be the number of samples,
                {expected[{LENGTH}]}.
                look: `__len__`
                when: yours[LENGTH] != expected[LENGTH]
            image, int(self.labels[index]) → int(self.labels[index]), image
                The image and its label are in the wrong order: (image, label) is right.
                look: `return` in `__getitem__`
                when: yours["no label"][0].ndim == 3
            def __getitem__ → @functools.cache\n    def __getitem__
            self.transform(image) → image || self.transform(self.transform(image))
                For one sample, the transform ran {yours[calls]} times. It should run once whenever you ask for a
                sample, even when you ask for the same one again.
                look: `image = self.transform(image)` in `__getitem__`
                when: yours["calls"] != expected["calls"]
            image = self.transform(image) → self.transform(image)
                You call the transform, but return the image from before it.
                look: `image = self.transform(image)`
                when: torch.equal(yours[IMAGES], images[[*order, order[0]]])
            int(self.labels[index]) → float(self.labels[index]) || self.labels[index : index + 1] || 'shirt'
                A label should be one whole number, the number of its class. Yours is {yours[no label][0]}.
                look: `int(self.labels[index])`
                when: yours["no label"]
            image = self.images[index] → image = self.images[index].float()
            if self.transform: → if not self.transform: image = image[0]\n        else:
                Without a transform, the image should come as it is stored, {expected[{PLAIN}]}. Yours is
                {yours[{PLAIN}]}.
                look: what happens to the image when `transform` is None
                when: torch.equal(yours[IMAGES], expected[IMAGES]) and _form(yours[PLAIN]) != _form(expected[PLAIN])
        """,
        also_right=[
            changed(_Samples, ("(Dataset)", ""), ("image, int(self.labels[index])", "[image, self.labels[index]]"))
        ],
    ),
)


# ---------------------------------------------------------------------------------------------------------------------


EPOCH = "The epoch that `restore` returns"


def _fresh(seed: int) -> tuple[nn.Module, torch.optim.Optimizer]:
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Dropout(0.5), nn.Linear(16, 3))
    return model, torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)


def _learn(model: nn.Module, optimizer: torch.optim.Optimizer, batches: list[Batch]) -> None:
    model.train()
    for x, y in batches:
        loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def _run(model: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, Any]:
    """What there is to save, and the mode."""
    return {
        "the row of weights": weights(model),
        "the momentum": copy.deepcopy(optimizer.state_dict()["state"]),
        "the random state": torch.get_rng_state(),
        "the mode": model.training,
    }


def _differing(one: dict[str, Any], other: dict[str, Any]) -> list[str]:
    return [name for name in one if not equal(one[name], other[name])]


def _stop_and_go_on(answer: Any, batches: list[Batch], epoch: int, seed: int) -> dict[str, Any]:
    """Train, save, put back into a fresh model and optimizer as in another process, and train on."""
    attempted(answer)
    if not isinstance(answer, tuple | list) or len(answer) != 2 or not all(callable(part) for part in answer):
        return {"instead": answer}
    checkpoint, restore = map(attempted, answer)
    model, optimizer = _fresh(seed)
    _learn(model, optimizer, batches[:3])
    before = _run(model, optimizer)
    state = call(checkpoint, model, optimizer, epoch, may_change=True)
    seen: dict[str, Any] = {"altered": _differing(before, _run(model, optimizer))}
    if seen["altered"]:
        return seen
    try:
        file = io.BytesIO()
        torch.save(state, file)
        state = torch.load(io.BytesIO(file.getvalue()), map_location="cpu")
    except Exception as error:
        refused = re.search(r"GLOBAL (\S+)", str(error))
        return seen | {"not saved": refused[1] if refused else type(error).__name__}
    call(checkpoint, *_fresh(seed + 2), epoch + 1, may_change=True)  # `state` has to be enough, whatever is saved later
    other, its_optimizer = _fresh(seed + 1)
    result = call(restore, other, its_optimizer, state, may_change=True, may_return_none=True)
    seen["lost"] = [name for name in _differing(before, _run(other, its_optimizer)) if name != "the mode"]
    _learn(other, its_optimizer, batches[3:])
    seen["The row of all weights after going on"] = weights(other)
    is_number = isinstance(result, np.generic) or (isinstance(result, Tensor) and result.numel() == 1)
    seen[EPOCH] = result.item() if is_number else result
    return seen


def _checkpoint(model, optimizer, epoch):
    states = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
    return states | {"random": torch.get_rng_state(), "epoch": epoch}


def _restore(model, optimizer, state):
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    torch.set_rng_state(state["random"])
    return state["epoch"]


def _checkpoint_as_list(model, optimizer, epoch):
    return [[*model.parameters()], optimizer.state_dict(), torch.get_rng_state(), torch.tensor(epoch)]


def _restore_from_list(model, optimizer, state):
    nn.utils.vector_to_parameters(torch.cat([saved.flatten() for saved in state[0]]), model.parameters())
    optimizer.load_state_dict(state[1])
    torch.set_rng_state(state[2])
    return state[3]


KEPT: dict[str, Tensor] = {}  # where wrong solutions keep weights aside, instead of in `state`

exercise(
    "go_on_exactly",
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
    spec=Spec(
        draw=lambda new: [
            ([(new.randn(5, 6), new.ints(0, 3, (5,))) for _ in range(6)], new.size(3, 60), new.size(0, 999))
        ],
        solution=(_checkpoint, _restore),
        probe=_stop_and_go_on,
        rtol=1e-6,
        atol=1e-7,
        look="is all of the state put back, and nothing else changed?",
        mistakes="""
            _checkpoint
            (_checkpoint, 3)
                The check needs your two functions, (checkpoint, restore). It got {yours[instead]}.
                look: the call of `check`
                when: "instead" in yours
            return states → torch.rand(1); return states || model.eval(); return states
                    || optimizer.state.clear(); return states
                Saving changed the run: after `checkpoint`, {yours[altered][0]} is not the same as before.
                look: `checkpoint`: a function that returns a state does not change it
                when: yours["altered"]
            model.state_dict() → model
            "epoch": epoch → "epoch": lambda: epoch
            return states → return states | {"more": np.random.get_state()}
                What you return cannot go through a file ({yours[not saved]}): `torch.load` takes tensors, numbers,
                strings and containers, and refuses any other object, such as a whole model or a NumPy array.
                look: `model.state_dict()` instead of `model`; `torch.get_rng_state()` is a tensor
                when: "not saved" in yours
            model.load_state_dict → len || type(model)(*map(copy.deepcopy, model)).load_state_dict
            model.state_dict() → KEPT.update(model.state_dict()) && state["model"] → KEPT
                After `restore`, the model does not have the saved weights.
                look: `model.load_state_dict(…)`. Is it the model you were given? Is all you need in `state`?
                when: "the row of weights" in yours["lost"]
            optimizer.load_state_dict → len || torch.optim.SGD(model.parameters()).load_state_dict
            torch.set → optimizer.state.clear(); torch.set
                The optimizer starts over: its momentum is lost, and the second half does not continue the first.
                look: `optimizer.state_dict()` in checkpoint; in restore, `load_state_dict` of the given optimizer
                when: "the momentum" in yours["lost"]
            torch.set_rng_state → len
            torch.set_rng_state(state["random"]) → torch.manual_seed(0)
            return state["epoch"] → torch.rand(1); return state["epoch"]
                The random numbers do not continue where they stopped: dropout drops different values, and the second
                half does not continue the first. A seed makes them start over.
                look: `torch.get_rng_state()` in checkpoint; `torch.set_rng_state` in restore, after anything random
                when: yours["lost"]
            return state["epoch"] → return
            state["epoch"] → state["epoch"] + 1 || model
            "epoch": epoch → "epoch": epoch - 1
                `restore` should return the epoch to continue with, the saved {epoch}. It returned {yours[{EPOCH}]}.
                look: the last line of `restore`
                when: yours[EPOCH] != expected[EPOCH]
        """,
        also_right=[(_checkpoint_as_list, _restore_from_list)],
    ),
)


# ---------------------------------------------------------------------------------------------------------------------


class OnePass:
    """Batches that come once. `passes` counts how often they were asked for."""

    def __init__(self, batches: list[tuple[Tensor, Tensor]]) -> None:
        self.batches, self.passes, self.given = batches, 0, 0

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        self.passes += 1
        if self.passes > 1:
            raise RuntimeError(f"the {len(self.batches)} batches come only once")
        for batch in self.batches:
            self.given += 1
            yield batch

    def __len__(self) -> int:
        return len(self.batches)


class _Steps:
    """Sees each step of every optimizer, by its method `see`."""

    def __init__(self) -> None:
        self.of: dict[torch.optim.Optimizer, int] = {}
        self.parameters: set[Tensor] = set()
        self.with_gradient = self.piled_up = self.slow = 0
        self.rate = 0.0
        self.latest: tuple[Tensor | None, int] = (None, 0)

    def see(self, optimizer: torch.optim.Optimizer, *_: Any) -> None:
        self.of[optimizer] = self.of.get(optimizer, 0) + 1
        parameters = [each for group in optimizer.param_groups for each in group["params"]]
        self.parameters.update(parameters)
        rate = max(float(group["lr"]) for group in optimizer.param_groups)
        self.rate = max(self.rate, rate)
        self.slow += rate < self.rate / 1000
        gradient = next((each.grad for each in parameters if each.grad is not None), None)
        self.with_gradient += gradient is not None
        if gradient is not None:
            # One change in place since the step before, by `backward`: nothing has cleared it.
            self.piled_up += gradient is self.latest[0] and gradient._version == self.latest[1] + 1
            self.latest = gradient, gradient._version


def _watch_training(answer: Any, images: Tensor, labels: Tensor, unseen: Tensor, seed: int) -> dict[str, Any]:
    """Train on these garments, and see what the network says about some that it has not seen."""
    torch.manual_seed(seed)
    batches = OnePass([(_normalized(images[i]), labels[i]) for i in torch.arange(len(images)).split(64)])
    steps = _Steps()
    with register_optimizer_step_pre_hook(steps.see):
        model = call(answer, batches, may_change=True, may_return_none=True)
    seen = {"passes": batches.passes, "given": batches.given}
    if not isinstance(model, nn.Module):
        return seen | {"instead": model}
    seen |= {"steps": max(steps.of.values(), default=0), "with gradient": steps.with_gradient, "rate": steps.rate}
    seen |= {"slow": steps.slow, "first": seen["steps"] - steps.slow}
    seen |= {"piled up": steps.piled_up, "another network": not steps.parameters & {*model.parameters()}}
    model.cpu()
    garments = _normalized(unseen)
    with torch.no_grad():
        seen["logits"] = logits = call(lambda x: model.eval()(x), garments, may_return_none=True)
        if isinstance(logits, Tensor) and logits.shape == (len(garments), 10):
            between = call(lambda x: model.eval()(x), (garments[::2] + garments[1::2]) / 2)
            seen["linear"] = torch.allclose(between, (logits[::2] + logits[1::2]) / 2, atol=1e-3)
        seen["logits in train mode"] = call(lambda x: model.train()(x), garments, may_return_none=True)
    return seen


def _normalized(images: Tensor) -> Tensor:
    (mean,), (std,) = data.MEAN_STD["fashion_mnist"]
    return (images.float() / 255 - mean) / std


def _trained(
    ask: Callable, images: Tensor, labels: Tensor, unseen: Tensor, classes: Tensor, seed: int
) -> dict[str, Any]:
    """What `_watch_training` sees, and accuracies. The classes of the unseen garments stay here."""
    seen = ask(images, labels, unseen, seed)
    for name, logits in (("accuracy", "logits"), ("accuracy in train mode", "logits in train mode")):
        if isinstance(seen.get(logits), Tensor) and seen[logits].shape == (len(unseen), 10):
            seen[name] = (seen[logits].argmax(1) == classes).float().mean().item()
    return seen


@functools.cache
def garments() -> Any:
    """Some of Fashion-MNIST's training images."""
    return data.load("fashion_mnist", "train").subset(slice(8000))


def _some_garments(new: Inputs) -> list[tuple]:
    order, n = new.permutation(len(garments())), 64 * STEPS
    learned, unseen = garments().subset(order[:n]), garments().subset(order[n : n + 1000])
    return [(learned.images, learned.labels, unseen.images, unseen.labels, new.size(0, 10**6))]


def _one_cycle(batches):
    model = _Network()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.01, total_steps=len(batches))
    model.train()
    for images, labels in batches:
        loss = F.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        scheduler.step()
    return model


IT_GETS = "{yours[accuracy]:.1%} of the garments are right, and at least 65% should be."

exercise(
    "train_garments",
    seconds=120.0,
    title="Learn from few batches",
    minutes=12,
    difficulty=4,
    points=4,
    takeaway="Under a budget, the learning rate and its schedule matter more than the network.",
    hints=(
        "A network, an optimizer, and the loop of chapter 02, once over the batches. Then tune the learning rate.",
        "`len(batches)` is known in advance, so the learning rate can rise and fall within it: OneCycleLR.",
        "`optimizer = torch.optim.Adam(model.parameters(), lr=0.01)`, `OneCycleLR(optimizer, 0.01, "
        "total_steps=len(batches))`, and `scheduler.step()` after each `optimizer.step()`.",
    ),
    spec=Spec(
        draw=_some_garments,
        solution=_one_cycle,
        probe=_watch_training,
        measure=_trained,
        free=True,
        finds={},  # nothing is compared with a result of the solution, so no check runs it
        mistakes=r"""
            model.train() → next(iter(batches))
                You went through the batches a second time: they come only once.
                look: one loop, no epochs; `next(iter(batches))` counts as a pass, too
                when: says(yours, "batches come only once") or yours["passes"] > 1
            return model → return || return model.state_dict()
                Your function should return the trained network. It returned {yours[instead]}.
                look: `return model`
                when: "instead" in yours
            return model → return nn.Sequential(model, nn.Flatten(0)) || return nn.Flatten()
                The network should give logits of shape (1000, 10) for 1,000 images. It gives {yours[logits]}.
                when: "accuracy" not in yours
            _Network() → nn.Sequential(_Network(), nn.Softmax(1)) || nn.Sequential(_Network(), nn.LogSoftmax(1))
                    || nn.Sequential(_Network(), nn.Sigmoid())
                There is a softmax or sigmoid at the end of your network, and the exercise asks for logits:
                `cross_entropy` has a softmax inside, and with two your network learns slowly.
                look: the last line of `forward`, or the last layer in `__init__`
                when: _is_softmax(yours["logits"]) or ((yours["logits"] >= 0) & (yours["logits"] <= 1)).all()
            in batches → in 2 * list(batches) && scheduler.step() → pass
                Your optimizer made {yours[steps]} steps with 80 batches. Use each batch for one step.
                look: a loop inside the loop over the batches, or batches that are kept for a second round
                when: yours["steps"] > STEPS
            optimizer.step() → break
            \n    return model → \n        return model
                Your loop ended after {yours[given]} of 80 batches. {IT_GETS}
                look: a `return` or `break` inside the loop, or no loop
                when: yours["accuracy"] < ENOUGH and yours["given"] < STEPS
            return model → return _Network()
                The network that you return is not the one that the optimizer changed. {IT_GETS}
                look: where the optimizer gets its parameters, and what you return
                when: yours["accuracy"] < ENOUGH and yours["steps"] and yours["another network"]
            optimizer.step() → pass || optimizer.zero_grad(); optimizer.step()
            loss.backward() → pass
                Your optimizer made {yours[steps]} steps, {yours[with gradient]} with a gradient. {IT_GETS}
                look: `loss.backward()`, then `optimizer.step()`, and no `zero_grad` between the two
                when: yours["accuracy"] < ENOUGH and not yours["with gradient"]
            optimizer.zero_grad() → pass && Adam → SGD && CycleLR(optimizer, 0.01 → CycleLR(optimizer, 0.3
                The gradients are never cleared, so each step follows the sum of all of them. {IT_GETS}
                look: `optimizer.zero_grad()` once for each batch
                when: yours["accuracy"] < ENOUGH and yours["piled up"] > yours["steps"] // 2
            _Network() → changed(_with_norm, ("2d(outputs)", "2d(outputs, momentum=0.0)"))()
                In train mode, your network would reach {yours[accuracy in train mode]:.1%}: its batch norm has learned
                no statistics. {IT_GETS}
                look: `model.train()` before the loop, and the `momentum` of the batch norm
                when: yours["accuracy"] < ENOUGH and yours["accuracy in train mode"] > yours["accuracy"] + 0.15
            scheduler.step() → optimizer.param_groups[0]["lr"] *= 0.1
                Your learning rate fell from {yours[rate]:g} to less than a thousandth of that in the first
                {yours[first]} of 80 steps, so the network hardly learned after that. {IT_GETS}
                look: the scheduler counts the calls of its `step()`, and here that is one for each batch
                when: yours["accuracy"] < ENOUGH and yours["slow"] > STEPS / 2
            _Network() → nn.Sequential(nn.Flatten(), nn.Linear(784, 10))
                Your network is linear: the logits of the mean of two images are the mean of their logits. In so few
                steps, that does as well as a small convolutional network, but it can never do better.
                look: at least two layers, with a nonlinearity such as ReLU between them
                when: yours["accuracy"] >= ENOUGH and yours["linear"]
            CycleLR(optimizer, 0.01 → CycleLR(optimizer, 1e6 || CycleLR(optimizer, 1e-7
            labels) → labels.roll(1))
                {IT_GETS} Your largest learning rate was {yours[rate]:g}.
                look: the learning rate, by factors of three. Near 10%, the network is guessing: does the loss fall?
                when: yours["accuracy"] < ENOUGH
        """,
        also_right=[changed(_one_cycle, ("_Network()", "_with_norm()"), ("return model", "return model.eval()"))],
    ),
)
