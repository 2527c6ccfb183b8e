"""Right and wrong answers to the exercises of chapter 04."""

import io
import math

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import Dataset


# conv_size -----------------------------------------------------------------------------------------------------------
def size_by_formula(n, kernel, stride=1, padding=0):
    return (n + 2 * padding - kernel) // stride + 1


def size_by_counting(n, kernel, stride=1, padding=0):
    return len(range(-padding, n + padding - kernel + 1, stride))


def size_by_asking(n, kernel, stride=1, padding=0):
    return F.conv1d(torch.zeros(1, 1, n), torch.zeros(1, 1, kernel), stride=stride, padding=padding).shape[-1]


def size_one_sided(n, kernel, stride=1, padding=0):
    return (n + padding - kernel) // stride + 1


def size_without_padding(n, kernel, stride=1, padding=0):
    return (n - kernel) // stride + 1


def size_one_short(n, kernel, stride=1, padding=0):
    return (n + 2 * padding - kernel) // stride


def size_rounded_up(n, kernel, stride=1, padding=0):
    return math.ceil((n + 2 * padding - kernel) / stride) + 1


def size_as_float(n, kernel, stride=1, padding=0):
    return (n + 2 * padding - kernel) / stride + 1


def size_without_stride(n, kernel, stride=1, padding=0):
    return n + 2 * padding - kernel + 1


def size_without_kernel(n, kernel, stride=1, padding=0):
    return (n + 2 * padding) // stride


def size_one_too_early(n, kernel, stride=1, padding=0):
    return (n + 2 * padding - kernel + 1) // stride


# convolve ------------------------------------------------------------------------------------------------------------
def convolve_by_loops(images, weight, bias):
    h, w = weight.shape[2:]
    rows, columns = images.shape[2] - h + 1, images.shape[3] - w + 1
    output = torch.zeros(len(images), len(weight), rows, columns)
    for row in range(rows):
        for column in range(columns):
            window = images[:, :, row : row + h, column : column + w]
            output[:, :, row, column] = torch.einsum("bchw,ochw->bo", window, weight) + bias
    return output


def convolve_by_windows(images, weight, bias):
    windows = images.unfold(2, weight.shape[2], 1).unfold(3, weight.shape[3], 1)
    return torch.einsum("bcijhw,ochw->boij", windows, weight) + bias[:, None, None]


def convolve_by_matmul(images, weight, bias):
    h, w = weight.shape[2:]
    columns = F.unfold(images, (h, w))
    output = weight.flatten(1) @ columns + bias[:, None]
    return output.unflatten(2, (images.shape[2] - h + 1, images.shape[3] - w + 1))


def convolve_by_moving_images(images, weight, bias):
    h, w = weight.shape[2:]
    rows, columns = images.shape[2] - h + 1, images.shape[3] - w + 1
    output = bias[:, None, None].expand(len(images), -1, rows, columns)
    for i in range(h):
        for j in range(w):
            part = images[:, :, i : i + rows, j : j + columns]
            output = output + torch.einsum("bcyx,oc->boyx", part, weight[:, :, i, j])
    return output


def convolve_no_bias(images, weight, bias):
    return convolve_by_windows(images, weight, torch.zeros_like(bias))


def convolve_flipped(images, weight, bias):
    return convolve_by_windows(images, weight.flip(2, 3), bias)


def convolve_first_channel(images, weight, bias):
    return convolve_by_windows(images[:, :1], weight[:, :1], bias)


def convolve_mean(images, weight, bias):
    return convolve_by_windows(images, weight / weight[0].numel(), bias)


def convolve_bias_each_channel(images, weight, bias):
    return convolve_by_windows(images, weight, bias * images.shape[1])


def convolve_by_conv2d(images, weight, bias):
    return F.conv2d(images, weight, bias)


def convolve_padded(images, weight, bias):
    h, w = weight.shape[2:]
    return convolve_by_windows(F.pad(images, (0, w - 1, 0, h - 1)), weight, bias)


def convolve_one_short(images, weight, bias):
    return convolve_by_windows(images, weight, bias)[:, :, :-1, :-1]


def convolve_last_places_empty(images, weight, bias):
    output = convolve_by_windows(images, weight, bias)
    output[:, :, -1] = output[:, :, :, -1] = 0
    return output


# small_net -----------------------------------------------------------------------------------------------------------
class SmallByAttributes(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 8, 3, padding=1)
        self.conv2 = nn.Conv2d(8, 16, 3, padding=1)
        self.dropout = nn.Dropout(0.2)
        self.last = nn.Linear(16 * 7 * 7, 10)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.conv1(x)), 2)
        x = F.max_pool2d(F.relu(self.conv2(x)), 2)
        return self.last(self.dropout(x.flatten(1)))


class SmallSequential(nn.Sequential):
    def __init__(self):
        layers = []
        for inputs, outputs in ((1, 16), (16, 32), (32, 32)):
            layers += [nn.Conv2d(inputs, outputs, 3, stride=2, padding=1), nn.BatchNorm2d(outputs), nn.ReLU()]
        super().__init__(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 10))


def small_by_function():
    return nn.Sequential(nn.Conv2d(1, 12, 5, stride=3), nn.GELU(), nn.Flatten(), nn.Linear(12 * 8 * 8, 10))


class SmallByHand(nn.Module):
    """Weights without nn.Conv2d, and a maximum over all places: it bends, without ReLU and without bias."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(10, 1, 7, 7) / 7)

    def forward(self, x):
        return F.conv2d(x, self.weight).amax((2, 3))


class SmallTooLarge(nn.Sequential):
    def __init__(self):
        super().__init__(nn.Conv2d(1, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 26 * 26, 10))


class SmallWithSoftmax(SmallByAttributes):
    def forward(self, x):
        return super().forward(x).softmax(dim=1)


class SmallWithLogSoftmax(SmallByAttributes):
    def forward(self, x):
        return super().forward(x).log_softmax(dim=1)


class SmallFlattensAll(SmallByAttributes):
    def forward(self, x):
        x = F.max_pool2d(F.relu(self.conv1(x)), 2)
        x = F.max_pool2d(F.relu(self.conv2(x)), 2)
        return self.last(x.flatten(0).view(-1, 784)[0])


class SmallView(nn.Module):
    """7 × 7 × 16 numbers for an image, cut into pieces of 392."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 16, 4, stride=4)
        self.last = nn.Linear(392, 10)

    def forward(self, x):
        return self.last(F.relu(self.conv(x)).view(-1, 392))


class SmallInList(nn.Module):
    def __init__(self):
        super().__init__()
        self.convs = [nn.Conv2d(1, 8, 3, stride=2), nn.Conv2d(8, 8, 3, stride=2)]
        self.last = nn.Linear(8 * 6 * 6, 10)

    def forward(self, x):
        for conv in self.convs:
            x = F.relu(conv(x))
        return self.last(x.flatten(1))


class SmallFunctionalDropout(SmallByAttributes):
    def forward(self, x):
        x = F.max_pool2d(F.relu(self.conv1(x)), 2)
        x = F.max_pool2d(F.relu(self.conv2(x)), 2)
        return self.last(F.dropout(x.flatten(1), 0.2))


class SmallDense(nn.Sequential):
    def __init__(self):
        super().__init__(nn.Flatten(), nn.Linear(784, 20), nn.ReLU(), nn.Linear(20, 10))


class SmallNineClasses(nn.Sequential):
    def __init__(self):
        super().__init__(nn.Conv2d(1, 8, 3, stride=3), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 81, 9))


class SmallWithoutRelu(nn.Sequential):
    def __init__(self):
        super().__init__(nn.Conv2d(1, 8, 3, stride=3), nn.Flatten(), nn.Linear(8 * 81, 20), nn.Linear(20, 10))


class SmallReluAtTheEnd(SmallByAttributes):
    def forward(self, x):
        return super().forward(x).relu()


class SmallWithoutGrad(SmallByAttributes):
    def forward(self, x):
        with torch.no_grad():
            return super().forward(x)


class SmallFrozen(SmallByAttributes):
    def __init__(self):
        super().__init__()
        self.requires_grad_(False)


class SmallLayerInForward(SmallByAttributes):
    def forward(self, x):
        x = F.max_pool2d(F.relu(self.conv1(x)), 4)
        return nn.Linear(8 * 49, 10)(x.flatten(1))


class SmallInPlace(SmallByAttributes):
    def forward(self, x):
        return super().forward(x.mul_(2))


class SmallUnused(SmallByAttributes):
    def __init__(self):
        super().__init__()
        self.conv3 = nn.Conv2d(16, 16, 3)


class SmallMixed(SmallByAttributes):
    def forward(self, x):
        return super().forward(x - x.mean(dim=0))


class SmallForgotReturn(SmallByAttributes):
    def forward(self, x):
        super().forward(x)


# image_dataset -------------------------------------------------------------------------------------------------------
class Garments(Dataset):
    def __init__(self, images, labels, transform=None):
        self.images, self.labels, self.transform = images, labels, transform

    def __len__(self):
        return len(self.images)

    def __getitem__(self, index):
        image = self.images[index]
        if self.transform:
            image = self.transform(image)
        return image, int(self.labels[index])


class GarmentsTensorLabels:
    def __init__(self, images, labels, transform=None):
        self.pairs = list(zip(images, labels, strict=True))
        self.transform = transform if transform is not None else lambda image: image

    def __len__(self):
        return len(self.pairs)

    def __getitem__(self, index):
        image, label = self.pairs[index]
        return self.transform(image), label


class GarmentsTransformedFirst(Garments):
    def __init__(self, images, labels, transform=None):
        super().__init__(images, labels)
        if transform:
            self.images = torch.stack([transform(image) for image in images])


class GarmentsAllAtOnce(Garments):
    def __init__(self, images, labels, transform=None):
        super().__init__(transform(images) if transform else images, labels)


class GarmentsIgnoreTransform(Garments):
    def __getitem__(self, index):
        return self.images[index], int(self.labels[index])


class GarmentsDropResult(Garments):
    def __getitem__(self, index):
        if self.transform:
            self.transform(self.images[index])
        return self.images[index], int(self.labels[index])


class GarmentsFloatLabels(Garments):
    def __init__(self, images, labels, transform=None):
        super().__init__(images, labels.float(), transform)

    def __getitem__(self, index):
        return super().__getitem__(index)[0], self.labels[index]


class GarmentsAlwaysTransform(Garments):
    def __getitem__(self, index):
        return self.transform(self.images[index]), int(self.labels[index])


class GarmentsOnlyImage(Garments):
    def __getitem__(self, index):
        return super().__getitem__(index)[0]


class GarmentsAllLabels(Garments):
    def __getitem__(self, index):
        return super().__getitem__(index)[0], self.labels


class GarmentsWrongLength(Garments):
    def __len__(self):
        return self.images.shape[1]


class GarmentsTwice(Garments):
    def __getitem__(self, index):
        return self.transform(self.images[index]) if self.transform(self.images[index]) is not None else 0, 0


class GarmentsRemembered(Garments):
    def __init__(self, images, labels, transform=None):
        super().__init__(images, labels, transform)
        self.memory = {}

    def __getitem__(self, index):
        if index not in self.memory:
            self.memory[index] = super().__getitem__(index)
        return self.memory[index]


class GarmentsSwapped(Garments):
    def __getitem__(self, index):
        return super().__getitem__(index)[::-1]


class GarmentsInPlace(Garments):
    def __getitem__(self, index):
        image, label = super().__getitem__(index)
        self.images[index] = 0
        return image, label


# go_on_exactly -------------------------------------------------------------------------------------------------------
def checkpoint(model, optimizer, epoch):
    return {
        "model": model.state_dict(),
        "optimizer": optimizer.state_dict(),
        "random": torch.get_rng_state(),
        "epoch": epoch,
    }


def restore(model, optimizer, state):
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    torch.set_rng_state(state["random"])
    return state["epoch"]


def checkpoint_as_list(model, optimizer, epoch):
    weights = [parameter.detach().clone() for parameter in model.parameters()]
    return [weights, optimizer.state_dict(), torch.random.get_rng_state(), torch.tensor(epoch)]


def restore_from_list(model, optimizer, state):
    with torch.no_grad():
        for parameter, saved in zip(model.parameters(), state[0], strict=True):
            parameter.copy_(saved)
    optimizer.load_state_dict(state[1])
    torch.random.set_rng_state(state[2])
    return state[3].item()


def restore_without_optimizer(model, optimizer, state):
    model.load_state_dict(state["model"])
    torch.set_rng_state(state["random"])
    return state["epoch"]


def restore_without_random(model, optimizer, state):
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    return state["epoch"]


def restore_weights_only(model, optimizer, state):
    model.load_state_dict(state["model"])
    return state["epoch"]


def restore_without_weights(model, optimizer, state):
    optimizer.load_state_dict(state["optimizer"])
    torch.set_rng_state(state["random"])
    return state["epoch"]


def restore_without_return(model, optimizer, state):
    restore(model, optimizer, state)


def restore_next_epoch(model, optimizer, state):
    return restore(model, optimizer, state) + 1


def checkpoint_whole(model, optimizer, epoch):
    return {"model": model, "optimizer": optimizer.state_dict(), "random": torch.get_rng_state(), "epoch": epoch}


def checkpoint_drawing(model, optimizer, epoch):
    torch.rand(1)
    return checkpoint(model, optimizer, epoch)


def checkpoint_without_optimizer(model, optimizer, epoch):
    return {"model": model.state_dict(), "random": torch.get_rng_state(), "epoch": epoch}


def checkpoint_in_eval_mode(model, optimizer, epoch):
    model.eval()
    return checkpoint(model, optimizer, epoch)


def checkpoint_aside(model, optimizer, epoch):
    buffer = io.BytesIO()
    torch.save(checkpoint(model, optimizer, epoch), buffer)
    checkpoint_aside.kept = buffer.getvalue()
    return epoch


def restore_from_aside(model, optimizer, state):
    restore(model, optimizer, torch.load(io.BytesIO(checkpoint_aside.kept)))
    return state


def restore_with_seed(model, optimizer, state):
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    torch.manual_seed(0)
    return state["epoch"]


# train_garments ------------------------------------------------------------------------------------------------------
def train_one_cycle(batches):
    model = SmallByAttributes()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.01, total_steps=len(batches))
    for images, labels in batches:
        loss = F.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        scheduler.step()
    return model


def train_with_norm(batches):
    model = SmallSequential().train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.02)
    for step, (images, labels) in enumerate(batches):
        optimizer.param_groups[0]["lr"] = 0.02 * (1 - step / len(batches))
        optimizer.zero_grad()
        F.cross_entropy(model(images), labels, label_smoothing=0.1).backward()
        optimizer.step()
    return model.eval()


def _sgd(batches, model, lr, loss_of=F.cross_entropy, limit=None):
    optimizer = torch.optim.SGD(model.parameters(), lr=lr)
    for step, (images, labels) in enumerate(batches):
        if step == limit:
            break
        optimizer.zero_grad()
        loss_of(model(images), labels).backward()
        optimizer.step()
    return model


def train_three_batches(batches):
    return _sgd(batches, SmallByAttributes(), 0.05, limit=3)


def train_returns_inside(batches):
    model = SmallByAttributes()
    for images, labels in batches:
        F.cross_entropy(model(images), labels).backward()
        return model


def train_with_softmax(batches):
    return _sgd(batches, SmallWithSoftmax(), 0.05)


def train_two_epochs(batches):
    model = SmallByAttributes()
    for _ in range(2):
        _sgd(batches, model, 0.05)
    return model


def train_with_stale_statistics(batches):
    class Norm(SmallSequential):
        def __init__(self):
            super().__init__()
            for module in self.modules():
                if isinstance(module, nn.BatchNorm2d):
                    module.momentum = 0.0  # statistics that never learn

    model = Norm()
    optimizer = torch.optim.AdamW(model.train().parameters(), lr=0.01)
    for images, labels in batches:
        optimizer.zero_grad()
        F.cross_entropy(model(images), labels).backward()
        optimizer.step()
    return model


def train_no_step(batches):
    model = SmallByAttributes()
    for images, labels in batches:
        F.cross_entropy(model(images), labels).backward()
    return model


def train_nothing_returned(batches):
    _sgd(batches, SmallByAttributes(), 0.05, limit=2)


def train_accuracy_returned(batches):
    _sgd(batches, SmallByAttributes(), 0.05, limit=2)
    return 0.9


def train_not_at_all(batches):
    return SmallByAttributes()


def train_far_too_fast(batches):
    return _sgd(batches, SmallByAttributes(), 1e6)


# receptive_field -----------------------------------------------------------------------------------------------------
def field_forward(layers):
    field = step = 1
    for kernel, stride in layers:
        field += (kernel - 1) * step
        step *= stride
    return field


def field_backward(layers):
    field = 1
    for kernel, stride in reversed(layers):
        field = (field - 1) * stride + kernel
    return field


def field_without_strides(layers):
    return 1 + sum(kernel - 1 for kernel, _ in layers)


def field_of_kernels(layers):
    return sum(kernel for kernel, _ in layers)


def field_own_stride_first(layers):
    field = step = 1
    for kernel, stride in layers:
        step *= stride
        field += (kernel - 1) * step
    return field


def field_without_the_middle(layers):
    return field_forward(layers) - 1


def field_product(layers):
    return math.prod(kernel for kernel, _ in layers)


def field_own_stride(layers):
    return 1 + sum((kernel - 1) * stride for kernel, stride in layers)


def field_strides(layers):
    return math.prod(stride for _, stride in layers)


def field_from_the_wrong_end(layers):
    field = 1
    for kernel, stride in layers:
        field = (field - 1) * stride + kernel
    return field


def field_last_stride_only(layers):
    field = step = 1
    for kernel, stride in layers:
        field += (kernel - 1) * step
        step = stride
    return field


RIGHT = {
    "conv_size": [size_by_formula, size_by_counting, size_by_asking],
    "convolve": [convolve_by_loops, convolve_by_windows, convolve_by_matmul, convolve_by_moving_images],
    "small_net": [SmallByAttributes, SmallSequential, small_by_function, SmallByHand],
    "image_dataset": [Garments, GarmentsTensorLabels],
    "go_on_exactly": [(checkpoint, restore), [checkpoint_as_list, restore_from_list]],
    "train_garments": [train_one_cycle, train_with_norm],
    "receptive_field": [field_forward, field_backward],
}

WRONG = {
    "conv_size": [
        (size_one_sided, "one side only"),
        (size_without_padding, "forgets the padding"),
        (size_one_short, "one short"),
        (size_rounded_up, "rounded up"),
        (size_as_float, "whole number"),
        (size_without_stride, "forgets the stride"),
        (size_without_kernel, "forgets the kernel"),
        (size_one_too_early, "one short"),
    ],
    "convolve": [
        (convolve_no_bias, "bias is missing"),
        (convolve_flipped, "flipped"),
        (convolve_first_channel, "first channel"),
        (convolve_mean, "mean over the window"),
        (convolve_bias_each_channel, "once for each input channel"),
        (convolve_by_conv2d, "PyTorch's convolution"),
        (convolve_padded, "no padding"),
        (convolve_one_short, "last row and column"),
        (convolve_last_places_empty, "nothing was written there"),
    ],
    "small_net": [
        (SmallTooLarge, "over the budget"),
        (SmallWithSoftmax, "softmax at the end"),
        (SmallWithLogSoftmax, "log_softmax"),
        (SmallFlattensAll, "batch got lost"),
        (SmallView, "batch got lost"),
        (SmallInList, "plain list"),
        (SmallFunctionalDropout, "drawn at random"),
        (SmallDense, "no convolution"),
        (SmallNineClasses, "wrong shape"),
        (SmallUnused, "no gradient"),
        (SmallMixed, "other company"),
        (SmallForgotReturn, "return"),
        (SmallWithoutRelu, "has no ReLU"),
        (SmallReluAtTheEnd, "no logit is below zero"),
        (SmallWithoutGrad, "can learn"),
        (SmallFrozen, "can learn"),
        (SmallLayerInForward, "layers are made in `__init__`"),
        (SmallInPlace, "changed its argument"),
    ],
    "image_dataset": [
        (GarmentsTransformedFirst, "already ran"),
        (GarmentsAllAtOnce, "not one image"),
        (GarmentsIgnoreTransform, "never called"),
        (GarmentsDropResult, "before it"),
        (GarmentsFloatLabels, "label is a float"),
        (GarmentsAlwaysTransform, "NoneType"),
        (GarmentsOnlyImage, "not a pair"),
        (GarmentsAllLabels, "one label"),
        (GarmentsWrongLength, "length"),
        (GarmentsTwice, "more than once"),
        (GarmentsInPlace, "have changed"),
        (GarmentsRemembered, "asked for again"),
        (GarmentsSwapped, "other way round"),
    ],
    "go_on_exactly": [
        ((checkpoint, restore_without_optimizer), "momentum is lost"),
        ((checkpoint, restore_without_random), "random numbers are others"),
        ((checkpoint, restore_weights_only), "neither momentum nor random"),
        ((checkpoint, restore_without_weights), "saved weights"),
        ((checkpoint, restore_without_return), "where to go on"),
        ((checkpoint, restore_next_epoch), "epoch that"),
        ((checkpoint_whole, restore), "state_dict"),
        ((checkpoint_drawing, restore), "changed the run"),
        ((checkpoint_without_optimizer, restore), "KeyError"),
        (checkpoint, "two functions"),
        ((checkpoint_in_eval_mode, restore), "changed the run"),
        ((checkpoint_aside, restore_from_aside), "in `state`"),
        ((checkpoint, restore_with_seed), "a seed was set"),
    ],
    "train_garments": [
        (train_three_batches, "ended after 4"),
        (train_returns_inside, "ended after 1"),
        (train_with_softmax, "softmax"),
        (train_two_epochs, "second time"),
        (train_with_stale_statistics, "statistics"),
        (train_no_step, "learning rate"),
        (train_nothing_returned, "return"),
        (train_accuracy_returned, "not return a network"),
        (train_not_at_all, "never looked"),
        (train_far_too_fast, "finite"),
    ],
    "receptive_field": [
        (field_without_strides, "strides are missing"),
        (field_of_kernels, "added the kernels"),
        (field_own_stride_first, "too early"),
        (field_without_the_middle, "middle is missing"),
        (field_product, "multiplied"),
        (field_own_stride, "own stride"),
        (field_strides, "product of the strides"),
        (field_from_the_wrong_end, "opposite order"),
        (field_last_stride_only, "multiply"),
    ],
}
