"""Right and wrong answers to the exercises of chapter 05."""

import itertools

import torch
import torch.nn.functional as F
from torch import nn

from torchcourse import augment, models


# channel_statistics --------------------------------------------------------------------------------------------------
def scaled_then_reduced(images):
    scaled = images.float() / 255
    return scaled.mean(dim=(0, 2, 3)), scaled.std(dim=(0, 2, 3))


def one_row_for_each_channel(images):
    rows = images.transpose(0, 1).flatten(1).double().div(255)
    return [rows.mean(1), rows.std(1, correction=0)]


def from_squares(images):
    scaled = images / 255
    mean = scaled.mean((0, 2, 3))
    return torch.stack([mean, (scaled.square().mean((0, 2, 3)) - mean.square()).sqrt()])


def not_scaled(images):
    return images.float().mean((0, 2, 3)), images.float().std((0, 2, 3))


def all_channels_together(images):
    scaled = images.float() / 255
    return scaled.mean(), scaled.std()


def over_images_only(images):
    scaled = images.float() / 255
    return scaled.mean(0), scaled.std(0)


def one_for_each_image(images):
    scaled = images.float() / 255
    return scaled.mean((1, 2, 3)), scaled.std((1, 2, 3))


def within_each_image(images):
    scaled = images.float() / 255
    return scaled.mean((0, 2, 3)), scaled.std((2, 3)).mean(0)


def of_the_means(images):
    scaled = images.float() / 255
    return scaled.mean((0, 2, 3)), scaled.mean((2, 3)).std(0)


def for_each_image_and_channel(images):
    scaled = images.float() / 255
    return scaled.mean((2, 3)), scaled.std((2, 3))


def axes_kept(images):
    scaled = images.float() / 255
    return scaled.mean((0, 2, 3), keepdim=True), scaled.std((0, 2, 3), keepdim=True)


def variance(images):
    scaled = images.float() / 255
    return scaled.mean((0, 2, 3)), scaled.var((0, 2, 3))


def deviation_first(images):
    return scaled_then_reduced(images)[::-1]


def folklore(images):
    half = torch.full((images.shape[1],), 0.5)
    return half, half


def of_bytes(images):
    return images.mean((0, 2, 3)), images.std((0, 2, 3))


def by_the_largest(images):
    scaled = images.float() / images.max()
    return scaled.mean((0, 2, 3)), scaled.std((0, 2, 3))


def by_256(images):
    scaled = images.float() / 256
    return scaled.mean((0, 2, 3)), scaled.std((0, 2, 3))


def deviation_not_scaled(images):
    return (images.float() / 255).mean((0, 2, 3)), images.float().std((0, 2, 3))


def means_only(images):
    return (images.float() / 255).mean((0, 2, 3))


# augment_batch -------------------------------------------------------------------------------------------------------
def windows_by_indexing(images, pixels):
    count, _, height, width = images.shape
    padded = F.pad(images, (pixels,) * 4)
    top, left = torch.randint(0, 2 * pixels + 1, (2, count))
    rows = top[:, None] + torch.arange(height)
    columns = left[:, None] + torch.arange(width)
    moved = padded[torch.arange(count)[:, None, None], :, rows[:, :, None], columns[:, None, :]].permute(0, 3, 1, 2)
    return torch.where(torch.rand(count)[:, None, None, None] < 0.5, moved.flip(-1), moved)


def of_the_course(images, pixels):
    return augment.shift(augment.flip(images), pixels)


def loop_over_offsets(images, pixels):
    result, (height, width) = torch.empty_like(images), images.shape[2:]
    padded = F.pad(images, (pixels,) * 4)
    places = torch.randint(2 * pixels + 1, (len(images), 2))
    for top in range(2 * pixels + 1):
        for left in range(2 * pixels + 1):
            chosen = (places == torch.tensor([top, left])).all(1)
            result[chosen] = padded[chosen][:, :, top : top + height, left : left + width]
    coin = torch.randint(2, (len(images),)).bool()
    result[coin] = result[coin].flip(-1)
    return result


def by_gather(images, pixels):
    count, channels, height, width = images.shape
    padded = F.pad(images, (pixels,) * 4)
    top, left = torch.randint(0, 2 * pixels + 1, (2, count, 1, 1, 1))
    rows = (top + torch.arange(height).view(1, 1, -1, 1)).expand(-1, channels, -1, padded.shape[3])
    columns = torch.where(
        torch.rand(count, 1, 1, 1) < 0.5, torch.arange(width).view(1, 1, 1, -1), torch.arange(width - 1, -1, -1)
    )
    columns = (left + columns).expand(-1, channels, height, -1)
    return padded.gather(2, rows).gather(3, columns)


def python_loop(images, pixels):
    result = []
    for image in images:
        top, left = torch.randint(0, 2 * pixels + 1, (2,)).tolist()
        window = F.pad(image, (pixels,) * 4)[:, top : top + image.shape[1], left : left + image.shape[2]]
        result.append(window.flip(-1) if torch.rand(()) < 0.5 else window)
    return torch.stack(result)


def one_luck_for_all(images, pixels):
    top, left = torch.randint(0, 2 * pixels + 1, (2,)).tolist()
    if top == left == pixels:
        top = 0
    moved = F.pad(images, (pixels,) * 4)[:, :, top : top + images.shape[2], left : left + images.shape[3]]
    return augment.flip(moved)


def one_coin_for_all(images, pixels):
    moved = augment.shift(images, pixels)
    return moved.flip(-1) if torch.rand(()) < 0.5 else moved


def never_mirrored(images, pixels):
    return augment.shift(images, pixels)


def always_mirrored(images, pixels):
    return augment.shift(images.flip(-1), pixels)


def never_moved(images, pixels):
    return augment.flip(images)


def unchanged(images, pixels):
    return images.clone()


def with_floats(images, pixels):
    return of_the_course(images.float(), pixels)


def rolled(images, pixels):
    down, right = torch.randint(-pixels, pixels + 1, (2,)).tolist()
    return augment.flip(images).roll((down or 1, right or 1), (-2, -1))


def upper_end_excluded(images, pixels):
    count, _, height, width = images.shape
    padded = F.pad(images, (pixels,) * 4)
    top, left = torch.randint(0, 2 * pixels, (2, count))
    rows, columns = top[:, None] + torch.arange(height), left[:, None] + torch.arange(width)
    moved = padded[torch.arange(count)[:, None, None], :, rows[:, :, None], columns[:, None, :]].permute(0, 3, 1, 2)
    return augment.flip(moved)


def diagonal(images, pixels):
    count, _, height, width = images.shape
    padded = F.pad(images, (pixels,) * 4)
    top = left = torch.randint(0, 2 * pixels + 1, (count,))
    rows, columns = top[:, None] + torch.arange(height), left[:, None] + torch.arange(width)
    moved = padded[torch.arange(count)[:, None, None], :, rows[:, :, None], columns[:, None, :]].permute(0, 3, 1, 2)
    return augment.flip(moved)


def sideways_only(images, pixels):
    count, _, _, width = images.shape
    padded = F.pad(images, (pixels, pixels, 0, 0))
    columns = torch.randint(0, 2 * pixels + 1, (count, 1)) + torch.arange(width)
    moved = padded[torch.arange(count)[:, None], :, :, columns].permute(0, 2, 3, 1)
    return augment.flip(moved)


def too_far(images, pixels):
    return augment.shift(augment.flip(images), pixels + 1)


def mirrored_edge(images, pixels):
    return augment.shift(augment.flip(images), pixels, mode="reflect")


def upside_down(images, pixels):
    coin = torch.randint(2, (len(images), 1, 1, 1)).bool()
    return augment.shift(torch.where(coin, images.flip(-2), images), pixels)


def shuffled(images, pixels):
    return of_the_course(images[torch.randperm(len(images))], pixels)


def channels_apart(images, pixels):
    if images.shape[1] == 1:
        return augment.shift(images, pixels, mode="replicate")
    parts = [augment.shift(channel[:, None], pixels) for channel in images.unbind(1)]
    return torch.cat(parts, 1)


def every_other_mirrored(images, pixels):
    moved = augment.shift(images, pixels)
    moved[::2] = moved[::2].flip(-1)
    return moved


def moved_by(draw):
    """Mirrored and moved, with one offset for each image and direction from draw(count, pixels)."""

    def answer(images, pixels):
        windows = F.pad(augment.flip(images), (pixels,) * 4).unfold(2, images.shape[2], 1).unfold(3, images.shape[3], 1)
        top, left = (draw(len(images), pixels) + pixels for _ in range(2))
        return windows[torch.arange(len(images)), :, top, left]

    return answer


def drawn_evenly(count, pixels):
    return torch.randint(-pixels, pixels + 1, (count,))


def drawn_and_rounded(count, pixels):
    return ((torch.rand(count) * 2 - 1) * pixels).round().long()


def drawn_and_truncated(count, pixels):
    return ((torch.rand(count) * 2 - 1) * (pixels + 1)).long()


def drawn_from_a_bell(count, pixels):
    return torch.randn(count).mul(pixels / 2).round().clamp(-pixels, pixels).long()


def drawn_at_the_ends(count, pixels):
    return (torch.randint(2, (count,)) * 2 - 1) * pixels


def coin_from_a_bell(images, pixels):
    mirrored = torch.randn(len(images), 1, 1, 1) < 0.5
    return augment.shift(torch.where(mirrored, images.flip(-1), images), pixels)


def with_labels(images, pixels):
    return of_the_course(images, pixels), torch.arange(len(images))


def seeded(images, pixels):
    torch.manual_seed(0)
    return of_the_course(images, pixels)


def in_place(images, pixels):
    images.copy_(of_the_course(images, pixels))
    return images


def kept_padding(images, pixels):
    return F.pad(augment.flip(images), (pixels,) * 4)


def brighter(images, pixels):
    return of_the_course(images // 2 + 1, pixels)


# residual_block ------------------------------------------------------------------------------------------------------
class PlainBlock(nn.Module):
    """Right; the wrong ones below change one thing each."""

    norm_starts_at_zero = True

    def __init__(self, inputs, outputs, stride=1):
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False)
        self.norm1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(outputs)
        if self.norm_starts_at_zero:
            nn.init.zeros_(self.norm2.weight)
        self.shortcut = self.make_shortcut(inputs, outputs, stride)

    def make_shortcut(self, inputs, outputs, stride):
        if stride == 1 and inputs == outputs:
            return nn.Identity()
        return nn.Conv2d(inputs, outputs, 1, stride, bias=False)

    def branch(self, x):
        return self.norm2(self.conv2(F.relu(self.norm1(self.conv1(x)))))

    def forward(self, x):
        return self.shortcut(x) + self.branch(x)


class WithReluAtTheEnd(PlainBlock):
    def make_shortcut(self, inputs, outputs, stride):
        if stride == 1 and inputs == outputs:
            return nn.Sequential()
        return nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))

    def forward(self, x):
        return F.relu(self.branch(x) + self.shortcut(x))


class Sequence(nn.Module):
    def __init__(self, inputs, outputs, stride=1):
        super().__init__()
        self.same = stride == 1 and inputs == outputs
        self.layers = nn.Sequential(
            nn.Conv2d(inputs, outputs, 3, stride=stride, padding="same" if stride == 1 else 1),
            nn.BatchNorm2d(outputs),
            nn.GELU(),
            nn.Conv2d(outputs, outputs, 3, padding=1),
            nn.BatchNorm2d(outputs),
        )
        torch.nn.init.constant_(self.layers[-1].weight, 0)
        if not self.same:
            self.match = nn.Conv2d(inputs, outputs, 1, stride=stride)

    def forward(self, x):
        return self.layers(x) + (x if self.same else self.match(x))


class NoReluButAtTheEnd(PlainBlock):
    def forward(self, x):
        return F.relu(self.shortcut(x) + self.norm2(self.conv2(self.norm1(self.conv1(x)))))


class StrideInTheSecond(PlainBlock):
    def __init__(self, inputs, outputs, stride=1):
        super().__init__(inputs, outputs, stride)
        self.conv1.stride, self.conv2.stride = self.conv2.stride, self.conv1.stride


class ShortcutWithNeighbors(PlainBlock):
    def make_shortcut(self, inputs, outputs, stride):
        if inputs == outputs and stride == 1:
            return nn.Identity()
        return nn.Conv2d(inputs, outputs, 3, stride, padding=1)


class FirstNormStartsAtZero(PlainBlock):
    norm_starts_at_zero = False

    def __init__(self, inputs, outputs, stride=1):
        super().__init__(inputs, outputs, stride)
        nn.init.zeros_(self.norm1.weight)


class BranchEndsInRelu(PlainBlock):
    def forward(self, x):
        return self.shortcut(x) + F.relu(self.branch(x))


class InPlaceRelu(PlainBlock):
    def forward(self, x):
        return super().forward(x.relu_())


class NotAdded(PlainBlock):
    def forward(self, x):
        return self.branch(x)


class AddedTwice(PlainBlock):
    def forward(self, x):
        return x + self.shortcut(x) + self.branch(x)


class NormStartsAtOne(PlainBlock):
    norm_starts_at_zero = False


class ShortcutAlwaysConvolves(PlainBlock):
    def make_shortcut(self, inputs, outputs, stride):
        return nn.Conv2d(inputs, outputs, 1, stride)


class ShortcutNeverConvolves(PlainBlock):
    def make_shortcut(self, inputs, outputs, stride):
        return nn.Identity()


class StrideForgotten(PlainBlock):
    def make_shortcut(self, inputs, outputs, stride):
        return nn.Identity() if inputs == outputs else nn.Conv2d(inputs, outputs, 1, stride)


class ShortcutWithoutStride(PlainBlock):
    def make_shortcut(self, inputs, outputs, stride):
        return nn.Identity() if inputs == outputs and stride == 1 else nn.Conv2d(inputs, outputs, 1)


class NoShortcutWhenShapesDiffer(PlainBlock):
    def forward(self, x):
        if isinstance(self.shortcut, nn.Identity):
            return x + self.branch(x)
        return self.branch(x)


class BranchUnused(PlainBlock):
    def forward(self, x):
        return self.shortcut(x) if isinstance(self.shortcut, nn.Identity) else self.shortcut(x) + self.branch(x)


class NoRelu(PlainBlock):
    def branch(self, x):
        return self.norm2(self.conv2(self.norm1(self.conv1(x))))


class OneConvolution(PlainBlock):
    def branch(self, x):
        return self.norm2(F.relu(self.norm1(self.conv1(x))))


class NoPadding(PlainBlock):
    def __init__(self, inputs, outputs, stride=1):
        super().__init__(inputs, outputs, stride)
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, bias=False)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, bias=False)

    def forward(self, x):
        return self.branch(x)


class StrideTwice(PlainBlock):
    def __init__(self, inputs, outputs, stride=1):
        super().__init__(inputs, outputs, stride)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, stride, padding=1, bias=False)


class HiddenInAList(nn.Module):
    def __init__(self, inputs, outputs, stride=1):
        super().__init__()
        self.layers = [PlainBlock(inputs, outputs, stride)]

    def forward(self, x):
        return self.layers[0](x)


class InPlace(PlainBlock):
    def forward(self, x):
        x += self.branch(x) + 1
        return x


class NoModule:
    def __init__(self, inputs, outputs, stride=1):
        self.inputs = inputs

    def forward(self, x):
        return x


class OneNorm(PlainBlock):
    def __init__(self, inputs, outputs, stride=1):
        super().__init__(inputs, outputs, stride)
        self.norm1 = nn.Identity()


# frozen_body ---------------------------------------------------------------------------------------------------------
class Frozen(nn.Module):
    """Right; the wrong ones below change one thing each."""

    def __init__(self, body, head):
        super().__init__()
        self.body, self.head = body.requires_grad_(False), head
        self.train()

    def train(self, mode=True):
        super().train(mode)
        self.body.eval()
        return self

    def forward(self, x):
        return self.head(self.body(x))


class WithoutGradients(nn.Module):
    def __init__(self, body, head):
        super().__init__()
        self.body, self.head = body, head
        for parameter in self.body.parameters():
            parameter.requires_grad = False
        self.train()

    def train(self, mode=True):
        self.training = mode
        self.head.train(mode)
        self.body.train(False)
        return self

    def forward(self, x):
        with torch.no_grad():
            features = self.body(x)
        return self.head(features)


class NoGradInForward(nn.Module):
    """The weights of the body keep requires_grad, and still nothing reaches them."""

    def __init__(self, body, head):
        super().__init__()
        self.body, self.head = body.eval(), head

    def train(self, mode=True):
        super().train(mode)
        self.body.eval()
        return self

    def forward(self, x):
        with torch.no_grad():
            features = self.body(x)
        return self.head(features)


class EvalInForward(nn.Module):
    def __init__(self, body, head):
        super().__init__()
        self.body, self.head = body, head
        body.requires_grad_(False)

    def forward(self, x):
        self.body.eval()
        return self.head(self.body(x))


class GradientsOnly(nn.Module):
    def __init__(self, body, head):
        super().__init__()
        self.body, self.head = body.requires_grad_(False), head

    def forward(self, x):
        return self.head(self.body(x))


class EvalOnce(GradientsOnly):
    def __init__(self, body, head):
        super().__init__(body, head)
        self.body.eval()


class WeightsStillLearn(Frozen):
    def __init__(self, body, head):
        super().__init__(body, head)
        self.body.requires_grad_(True)


class AttributeOnly(Frozen):
    def __init__(self, body, head):
        super().__init__(body, head)
        self.body.requires_grad_(True)
        self.body.requires_grad = False


class EverythingFrozen(Frozen):
    def __init__(self, body, head):
        super().__init__(body, head)
        self.requires_grad_(False)


class HeadInEvalToo(Frozen):
    def train(self, mode=True):
        super().train(False)
        return self


class ReturnsNothing(Frozen):
    def train(self, mode=True):
        super().train(mode)


class NormsOnly(GradientsOnly):
    def train(self, mode=True):
        super().train(mode)
        for module in self.body.modules():
            if isinstance(module, nn.BatchNorm2d):
                module.eval()
        return self


class MomentumZero(GradientsOnly):
    def __init__(self, body, head):
        super().__init__(body, head)
        for module in body.modules():
            if isinstance(module, nn.BatchNorm2d):
                module.momentum = 0.0
                module.track_running_stats = False


class NoGradAroundAll(Frozen):
    def forward(self, x):
        with torch.no_grad():
            return super().forward(x)


class HeadNeverEval(Frozen):
    def train(self, mode=True):
        super().train(True)
        self.body.eval()
        return self


class BodyHidden(nn.Module):
    def __init__(self, body, head):
        super().__init__()
        self.parts, self.head = [body.requires_grad_(False).eval()], head

    def forward(self, x):
        return self.head(self.parts[0](x))


class ModeForgotten(Frozen):
    def train(self, mode=True):
        self.head.train(mode)
        self.body.eval()
        return self


class BornInTrainMode(Frozen):
    def __init__(self, body, head):
        super().__init__(body, head)
        self.body.train()


class Probabilities(Frozen):
    def forward(self, x):
        return super().forward(x).softmax(1)


class OtherFeatures(Frozen):
    def forward(self, x):
        return self.head(self.body(x).relu())


class WrongPartFrozen(Frozen):
    def __init__(self, body, head):
        super().__init__(body, head)
        self.body.requires_grad_(True)
        self.head.requires_grad_(False)


class HeadUnused(Frozen):
    def forward(self, x):
        return self.body(x)[:, :1].expand(-1, self.head[1].out_features)


# gain_interval -------------------------------------------------------------------------------------------------------
def paired(before, after, t):
    gains = after - before
    half = t * gains.std() / len(gains) ** 0.5
    return gains.mean().item(), half.item(), bool(gains.mean() - half > 0)


def paired_in_python(before, after, t):
    gains = [b - a for a, b in zip(before.tolist(), after.tolist(), strict=True)]
    n = len(gains)
    mean = sum(gains) / n
    half = t * (sum((gain - mean) ** 2 for gain in gains) / (n - 1) / n) ** 0.5
    return [mean, half, mean > half]


def interval(gain=None, half=None, real=None):
    """`paired` with one part replaced by a function of (before, after, t)."""

    def answer(before, after, t):
        right = paired(before, after, t)
        changed = [part(before, after, t) if part else value for part, value in zip((gain, half, real), right)]  # noqa: B905
        return tuple(changed)

    return answer


def only_two(before, after, t):
    return paired(before, after, t)[:2]


# train_within --------------------------------------------------------------------------------------------------------
def trained(model, budget, lr=0.01, adam=True, schedule=True):
    """Train a model within the budget and return it."""
    optimizer = torch.optim.Adam(model.parameters()) if adam else torch.optim.SGD(model.parameters(), lr, momentum=0.9)
    if schedule:
        scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=lr, total_steps=len(budget))
    model.train()
    for images, labels in budget:
        loss = F.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if schedule:
            scheduler.step()
    return model


def three_stages():
    blocks = [models.ConvBlock(3, 16, stride=2), models.ConvBlock(16, 32, stride=2), models.ConvBlock(32, 64, stride=2)]
    return nn.Sequential(models.Normalize("cifar10"), *blocks, nn.Flatten(), nn.Linear(64 * 16, 10))


def adam_one_cycle(budget):
    return trained(three_stages(), budget)


def momentum_one_cycle(budget):
    return trained(three_stages(), budget, lr=0.1, adam=False)


class Bytes(nn.Module):
    def forward(self, images):
        return images.float() / 255


def linear():
    return nn.Sequential(models.Normalize("cifar10"), nn.Flatten(), nn.Linear(3072, 10))


def linear_only(budget):
    return trained(linear(), budget, lr=0.003, adam=False)


def learning_rate_zero(budget):
    return trained(linear(), budget, lr=0.0, adam=False, schedule=False)


def untrained(budget):
    return three_stages()


def exploded(budget):
    model = nn.Sequential(Bytes(), models.CifarTutorial())
    optimizer = torch.optim.SGD(model.parameters(), lr=1e20)
    for images, labels in itertools.islice(budget, 5):
        F.cross_entropy(model(images), labels).backward()
        optimizer.step()
    return model


def twice_through(budget):
    return trained(trained(linear(), budget), budget)


def model_and_history(budget):
    return three_stages(), []


def ten_steps(budget):
    model, optimizer = three_stages(), None
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for number, (images, labels) in enumerate(budget):
        if number == 10:
            break
        F.cross_entropy(model(images), labels).backward()
        optimizer.step()
        optimizer.zero_grad()
    return model


def many_steps_on_each_batch(budget):
    model = linear()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for images, labels in budget:
        for _ in range(2):
            F.cross_entropy(model(images), labels).backward()
            optimizer.step()
            optimizer.zero_grad()
    return model


def normalized_outside(budget):
    def prepared():
        for images, labels in budget:
            yield (images.float() / 255 - 0.47) / 0.25, labels

    model = linear()[1:]
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for images, labels in prepared():
        optimizer.zero_grad()
        F.cross_entropy(model(images), labels).backward()
        optimizer.step()
    return model


def returns_inside(budget):
    model = linear()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for images, labels in budget:
        F.cross_entropy(model(images), labels).backward()
        optimizer.step()
        return model


def wants_floats(budget):
    for _ in budget:
        break
    return nn.Sequential(nn.Flatten(), nn.Linear(3072, 10))


def two_classes(budget):
    for _ in budget:
        break
    return nn.Sequential(Bytes(), nn.Flatten(), nn.Linear(3072, 2))


# smoothed_loss -------------------------------------------------------------------------------------------------------
def by_target(logits, labels, smoothing):
    classes = logits.shape[1]
    target = F.one_hot(labels, classes) * (1 - smoothing) + smoothing / classes
    return -(target * logits.log_softmax(1)).sum(1).mean()


def by_two_losses(logits, labels, smoothing):
    logs = logits - logits.logsumexp(1, keepdim=True)
    right = logs[torch.arange(len(labels)), labels].mean()
    return -((1 - smoothing) * right + smoothing * logs.mean())


def ready_made(logits, labels, smoothing):
    return F.cross_entropy(logits, labels, label_smoothing=smoothing)


def by_soft_targets(logits, labels, smoothing):
    target = torch.full_like(logits, smoothing / logits.shape[1])
    target[torch.arange(len(labels)), labels] += 1 - smoothing
    return F.cross_entropy(logits, target)


def ready_made_module(logits, labels, smoothing):
    return nn.CrossEntropyLoss(label_smoothing=smoothing)(logits, labels)


def all_labels_for_every_image(logits, labels, smoothing):
    logs = logits.log_softmax(1)
    return -((1 - smoothing) * logs[:, labels].mean() + smoothing * logs.mean())


def classes_from_labels(logits, labels, smoothing):
    target = F.one_hot(labels) * (1 - smoothing) + smoothing / logits.shape[1]
    return -(target * logits.log_softmax(1)).sum(1).mean()


def smooth(target, reduce=lambda product: -product.sum(1).mean(), log=lambda logits: logits.log_softmax(1)):
    """A loss with another target, another reduction, or something else than log_softmax."""

    def answer(logits, labels, smoothing):
        hot = F.one_hot(labels, logits.shape[1]).float()
        return reduce(target(hot, smoothing, logits.shape[1]) * log(logits))

    return answer


def right_target(hot, smoothing, classes):
    return hot * (1 - smoothing) + smoothing / classes


RIGHT = {
    "channel_statistics": [scaled_then_reduced, one_row_for_each_channel, from_squares],
    "augment_batch": [windows_by_indexing, of_the_course, loop_over_offsets, by_gather, moved_by(drawn_evenly)],
    "residual_block": [PlainBlock, WithReluAtTheEnd, Sequence],
    "frozen_body": [Frozen, WithoutGradients, NoGradInForward, EvalInForward],
    "gain_interval": [paired, paired_in_python],
    "train_within": [adam_one_cycle, momentum_one_cycle],
    "smoothed_loss": [by_target, by_two_losses, by_soft_targets],
}

WRONG = {
    "channel_statistics": [
        (not_scaled, "divide by 255"),
        (deviation_not_scaled, "divide by 255"),
        (by_the_largest, "bytes end at 255"),
        (by_256, "divided by 256"),
        (all_channels_together, "all channels together"),
        (over_images_only, "over the images alone"),
        (one_for_each_image, "one number for each image"),
        (for_each_image_and_channel, "each channel of each image"),
        (within_each_image, "within each image"),
        (of_the_means, "deviation of the images' means"),
        (axes_kept, "kept the axes"),
        (variance, "variance"),
        (deviation_first, "other way round"),
        (folklore, "0.5 is what many pages write"),
        (of_bytes, "could not infer"),
        (means_only, "two tensors"),
    ],
    "augment_batch": [
        (python_loop, "there is a loop"),
        (one_luck_for_all, "one luck for the whole batch"),
        (one_coin_for_all, "needs a coin of its own"),
        (never_mirrored, "none of your images is mirrored"),
        (always_mirrored, "all of your images are mirrored"),
        (never_moved, "never move up or down"),
        (unchanged, "as it came"),
        (with_floats, "no longer bytes"),
        (rolled, "comes in again on the other"),
        (upper_end_excluded, "never draws `high` itself"),
        (diagonal, "diagonal"),
        (moved_by(drawn_and_rounded), "equally likely"),
        (moved_by(drawn_and_truncated), "equally likely"),
        (moved_by(drawn_from_a_bell), "equally likely"),
        (moved_by(drawn_at_the_ends), "equally likely"),
        (coin_from_a_bell, "far from one half"),
        (every_other_mirrored, "mirror the same images"),
        (sideways_only, "never move up or down"),
        (too_far, "too far"),
        (mirrored_edge, "not black"),
        (upside_down, "upside down"),
        (shuffled, "labels no longer belong"),
        (with_labels, "two things"),
        (seeded, "manual_seed"),
        (in_place, "changed its argument"),
        (kept_padding, "wrong shape"),
        (brighter, "no moved or mirrored copy"),
    ],
    "residual_block": [
        (NotAdded, "the input is not added"),
        (AddedTwice, "added twice"),
        (NormStartsAtOne, "does not begin at zero"),
        (ShortcutAlwaysConvolves, "as shortcut"),
        (ShortcutNeverConvolves, "do not fit together"),
        (StrideForgotten, "do not fit together"),
        (ShortcutWithoutStride, "do not fit together"),
        (NoShortcutWhenShapesDiffer, "no shortcut"),
        (BranchUnused, "never used"),
        (NoRelu, "has no ReLU"),
        (NoReluButAtTheEnd, "has no ReLU"),
        (StrideInTheSecond, "the first one still works"),
        (ShortcutWithNeighbors, "neighbors"),
        (FirstNormStartsAtZero, "stays there"),
        (BranchEndsInRelu, "stays there"),
        (InPlaceRelu, "changed its argument"),
        (OneConvolution, "one 3×3 convolution"),
        (NoPadding, "wrong shape"),
        (StrideTwice, "do not fit together"),
        (HiddenInAList, "finds no convolution"),
        (InPlace, "changed its argument"),
        (NoModule, "no module"),
        (OneNorm, "followed by a batch norm"),
    ],
    "frozen_body": [
        (GradientsOnly, "running statistics"),
        (EvalOnce, "running statistics"),
        (WeightsStillLearn, "still learn"),
        (AttributeOnly, "with the underscore"),
        (EverythingFrozen, "the head is frozen"),
        (WrongPartFrozen, "the head is frozen"),
        (ModeForgotten, "still in train mode"),
        (BornInTrainMode, "before anybody"),
        (Probabilities, "softmax"),
        (OtherFeatures, "not what the body makes"),
        (HeadInEvalToo, "head is not in train mode"),
        (ReturnsNothing, "return self"),
        (NormsOnly, "throws values away"),
        (MomentumZero, "those of the batch"),
        (NoGradAroundAll, "no gradient for the head"),
        (HeadNeverEval, "still in train mode"),
        (BodyHidden, "does not find the weights of the body"),
        (HeadUnused, "never calls its head"),
    ],
    "gain_interval": [
        (interval(gain=lambda b, a, t: (b - a).mean()), "other sign"),
        (interval(gain=lambda b, a, t: (a - b).sum()), "take the mean"),
        (interval(gain=lambda b, a, t: a.max() - b.max()), "best seeds"),
        (interval(gain=lambda b, a, t: a.mean()), "what was there before"),
        (interval(half=lambda b, a, t: (a - b).std()), "how sure is their mean"),
        (interval(half=lambda b, a, t: t * (a - b).std()), "√n is missing"),
        (interval(half=lambda b, a, t: (a - b).std() / len(a) ** 0.5), "factor t is missing"),
        (interval(half=lambda b, a, t: 1.96 * (a - b).std() / len(a) ** 0.5), "1.96"),
        (interval(half=lambda b, a, t: t * (a - b).std() / len(a)), "divided by n"),
        (interval(half=lambda b, a, t: t * (a - b).var() / len(a) ** 0.5), "variance"),
        (interval(half=lambda b, a, t: t * (a - b).std(correction=0) / len(a) ** 0.5), "n − 1 is due"),
        (interval(half=lambda b, a, t: 2 * t * (a - b).std() / len(a) ** 0.5), "whole width"),
        (interval(half=lambda b, a, t: t * ((a.var() + b.var()) / len(a)) ** 0.5), "strangers"),
        (interval(real=lambda b, a, t: (a - b).mean() > 0), "may well be luck"),
        (interval(real=lambda b, a, t: (a - b).mean().abs() > paired(b, a, t)[1]), "wrong side"),
        (interval(real=lambda b, a, t: False), "you say the gain is not real"),
        (only_two, "three things"),
        (interval(gain=lambda b, a, t: 100 * (a - b).mean()), "percentage points"),
        (interval(gain=lambda b, a, t: ((a - b) / b).mean()), "relative"),
        (interval(gain=lambda b, a, t: (a - b).mean() - paired(b, a, t)[1]), "ends of the interval"),
        (interval(gain=lambda b, a, t: paired(b, a, t)[1]), "other way round"),
        (interval(real=lambda b, a, t: "real"), "True or False"),
        (interval(real=lambda b, a, t: a - b - paired(b, a, t)[1] > 0), "True or False"),
    ],
    "train_within": [
        (linear_only, "learns, but not enough"),
        (learning_rate_zero, "guesses"),
        (untrained, "never asked for a batch"),
        (exploded, "blown up"),
        (twice_through, "used up"),
        (model_and_history, "only the model"),
        (ten_steps, "steps"),
        (many_steps_on_each_batch, "loop inside the loop"),
        (wants_floats, "does not take bytes"),
        (normalized_outside, "does not take bytes"),
        (returns_inside, "1 of 150"),
        (two_classes, "ten logits"),
    ],
    "smoothed_loss": [
        (smooth(lambda hot, s, k: hot), "without smoothing"),
        (smooth(lambda hot, s, k: hot * (1 - s) + (1 - hot) * s / (k - 1)), "wrong classes alone"),
        (smooth(lambda hot, s, k: hot + s / k), "more than one"),
        (smooth(lambda hot, s, k: hot * (1 - s)), "goes nowhere"),
        (smooth(right_target, lambda product: -product.sum()), "added the losses"),
        (smooth(right_target, lambda product: -product.mean()), "mean over the classes"),
        (smooth(right_target, lambda product: product.sum(1).mean()), "sign"),
        (smooth(right_target, lambda product: -product.sum(1)), "one loss for each image"),
        (smooth(right_target, log=lambda logits: logits), "left out the softmax"),
        (smooth(right_target, log=lambda logits: logits.softmax(1)), "left out the logarithm"),
        (smooth(right_target, log=lambda logits: logits.softmax(1).log_softmax(1)), "two softmaxes"),
        (smooth(right_target, log=lambda logits: logits.log_softmax(0)), "axis 1"),
        (lambda logits, labels, s: by_target(logits.detach(), labels, s), "no gradient"),
        (lambda logits, labels, s: by_target(logits, labels, s).item(), "no gradient"),
        (ready_made, "PyTorch's label smoothing"),
        (ready_made_module, "PyTorch's label smoothing"),
        (smooth(lambda hot, s, k: torch.where(hot > 0, 1 - s, s / k)), "gets its share too"),
        (smooth(lambda hot, s, k: hot * (1 - s) + s), "smoothing / classes"),
        (smooth(lambda hot, s, k: hot * s + (1 - s) / k), "1 − smoothing for smoothing"),
        (lambda logits, labels, s: by_target(logits, labels, 0.1), "your loss is not right"),
        (all_labels_for_every_image, "for every image"),
        (classes_from_labels, "must match"),
    ],
}
