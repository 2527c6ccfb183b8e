"""Right and wrong answers to the exercises of chapter 01. The form is described in tests/test_checks.py."""

import collections
import math
import random

import numpy as np
import torch

# ---------------------------------------------------------------------------------------------------------------------
# scale_pixels


def by_division(pixels):
    return pixels / 255


def by_float_and_factor(pixels):
    return pixels.to(torch.float32).mul_(1 / 255)


def by_numpy(pixels):
    return torch.from_numpy(pixels.numpy().astype(np.float32) / 255)


class Scale(torch.nn.Module):
    def forward(self, pixels):
        return pixels.clone().float().div_(255).contiguous(memory_format=torch.channels_last).requires_grad_()


def by_table(pixels):
    return (torch.arange(256) / 255)[pixels.long()]


def by_largest(pixels):
    return pixels / pixels.max()


def stretched(pixels):
    pixels = pixels.float()
    return (pixels - pixels.min()) / (pixels.max() - pixels.min())


def image_by_image_stretched(pixels):
    return pixels / pixels.amax((1, 2, 3), keepdim=True)


def in_place_division(pixels):
    pixels /= 255
    return pixels


def only_float(pixels):
    return pixels.float()


def floor_division(pixels):
    return pixels // 255


def stored_as_bytes(pixels):
    return (pixels * 2.0).to(torch.uint8)


def by_256(pixels):
    return pixels / 256


def from_minus_one(pixels):
    return pixels / 127.5 - 1


def as_doubles(pixels):
    return pixels.double() / 255


# ---------------------------------------------------------------------------------------------------------------------
# view_or_copy

TRUTH = {
    "x[1:3]": "view",
    "x[[1, 2]]": "copy",
    "x.T": "view",
    "x[x > 10]": "copy",
    "x.reshape(24)": "view",
    "x.T.reshape(24)": "copy",
    "x.T.stride()": (1, 6),
    "x[:, ::2].stride()": (6, 2),
}
IN_CAPITALS = TRUTH | {"x.T": "View ", "x.T.stride()": [1, 6]}


# ---------------------------------------------------------------------------------------------------------------------
# normalize


def with_keepdim(images):
    mean = images.mean(dim=(0, 2, 3), keepdim=True)
    return (images - mean) / images.std(dim=(0, 2, 3), keepdim=True)


def with_none(images):
    mean, variance = images.mean((0, 2, 3)), images.var((0, 2, 3), correction=0)
    return (images - mean[:, None, None]) / variance.sqrt()[:, None, None]


def by_batch_norm(images):
    return torch.nn.functional.batch_norm(images, None, None, training=True)


def channel_by_channel(images):
    return torch.stack([(channel - channel.mean()) / channel.std() for channel in images.unbind(1)], dim=1)


def by_sums(images):
    count = images[:, 0].numel()
    centered = images - (torch.einsum("nchw->c", images) / count).view(1, -1, 1, 1)
    return centered * (torch.einsum("nchw,nchw->c", centered, centered) / count).rsqrt().view(1, -1, 1, 1)


def for_three_channels(images):
    images = images.clone()
    for channel in range(3):
        images[:, channel] = (images[:, channel] - images[:, channel].mean()) / images[:, channel].std()
    return images


def three_by_view(images):
    return (images - images.mean((0, 2, 3)).view(1, 3, 1, 1)) / images.std((0, 2, 3)).view(1, 3, 1, 1)


def along_the_width(images):
    return (images - images.mean((0, 2, 3))) / images.std((0, 2, 3))


def one_for_all(images):
    return (images - images.mean()) / images.std()


def over(axes):
    def normalize(images):
        return (images - images.mean(axes, keepdim=True)) / images.std(axes, keepdim=True)

    return normalize


def only_centered(images):
    return images - images.mean((0, 2, 3), keepdim=True)


def only_scaled(images):
    return images / images.std((0, 2, 3), keepdim=True)


def no_parentheses(images):
    return images - images.mean((0, 2, 3), keepdim=True) / images.std((0, 2, 3), keepdim=True)


def by_variance(images):
    return (images - images.mean((0, 2, 3), keepdim=True)) / images.var((0, 2, 3), keepdim=True)


def in_place(images):
    images -= images.mean((0, 2, 3), keepdim=True)
    images /= images.std((0, 2, 3), keepdim=True)
    return images


# ---------------------------------------------------------------------------------------------------------------------
# held_out_split


def own_generator(n, held_out, seed):
    order = torch.randperm(n, generator=torch.Generator().manual_seed(seed))
    return order[held_out:], order[:held_out]


def numpy_generator(n, held_out, seed):
    order = torch.from_numpy(np.random.default_rng(seed).permutation(n))
    return order[:-held_out], order[-held_out:]


def state_put_back(n, held_out, seed):
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        order = torch.randperm(n)
    return order.split([n - held_out, held_out])


def python_generator(n, held_out, seed):
    order = list(range(n))
    random.Random(seed).shuffle(order)
    return [torch.tensor(order[held_out:]), torch.tensor(order[:held_out])]


def by_random_split(n, held_out, seed):
    generator = torch.Generator().manual_seed(seed)
    parts = torch.utils.data.random_split(range(n), [n - held_out, held_out], generator=generator)
    return tuple(torch.tensor(part.indices) for part in parts)


def sorted_parts(n, held_out, seed):
    return tuple(part.sort().values for part in own_generator(n, held_out, seed))


def seeded_back(n, held_out, seed):
    before = torch.initial_seed()
    split = global_seed(n, held_out, seed)
    torch.manual_seed(before)
    return split


def from_one(n, held_out, seed):
    train, held = own_generator(n, held_out, seed)
    return train + 1, held + 1


def one_lost(n, held_out, seed):
    order = own_generator(n, 0, seed)[0]
    return order[held_out + 1 :], order[:held_out]


def rolled(n, held_out, seed):
    order = torch.arange(n).roll(seed)
    return order[held_out:], order[:held_out]


def a_fifth(n, held_out, seed):
    order = own_generator(n, 0, seed)[0]
    return order[n // 5 :], order[: n // 5]


def global_seed(n, held_out, seed):
    torch.manual_seed(seed)
    order = torch.randperm(n)
    return order[held_out:], order[:held_out]


def global_numpy_seed(n, held_out, seed):
    np.random.seed(seed)
    order = torch.from_numpy(np.random.permutation(n))
    return order[held_out:], order[:held_out]


def no_seed(n, held_out, seed):
    order = torch.randperm(n)
    return order[held_out:], order[:held_out]


def always_seed_0(n, held_out, seed):
    return own_generator(n, held_out, 0)


def not_shuffled(n, held_out, seed):
    return torch.arange(n - held_out), torch.arange(n - held_out, n)


def drawn_twice(n, held_out, seed):
    generator = torch.Generator().manual_seed(seed)
    return (
        torch.randperm(n, generator=generator)[: n - held_out],
        torch.randperm(n, generator=generator)[:held_out],
    )


def with_repetition(n, held_out, seed):
    generator = torch.Generator().manual_seed(seed)
    train = 2 * torch.randint(0, n // 2, (n - held_out,), generator=generator)
    return train, 2 * torch.randint(0, n // 2, (held_out,), generator=generator) + 1


def swapped_parts(n, held_out, seed):
    return own_generator(n, held_out, seed)[::-1]


def half_and_half(n, held_out, seed):
    return torch.randperm(n, generator=torch.Generator().manual_seed(seed)).split([n // 2, n - n // 2])


def only_one_part(n, held_out, seed):
    return own_generator(n, held_out, seed)[0]


def floats_for_indices(n, held_out, seed):
    train, held = own_generator(n, held_out, seed)
    return train.float(), held.float()


# ---------------------------------------------------------------------------------------------------------------------
# pairwise_distances


def by_broadcasting(a, b):
    return (a[:, None] - b[None]).square().sum(-1).sqrt()


def by_norm(a, b):
    return torch.linalg.vector_norm(a.unsqueeze(1) - b, dim=2)


def by_products(a, b):
    squares = (a * a).sum(1)[:, None] + (b * b).sum(1) - 2 * a @ b.T
    return squares.clamp(min=0).sqrt()


def by_cdist(a, b):
    return torch.cdist(a, b)


def by_numpy_norm(a, b):
    return torch.from_numpy(np.linalg.norm(a.numpy()[:, None] - b.numpy(), axis=-1))


def by_vmap(a, b):
    return torch.vmap(lambda point: (point - b).square().sum(1).sqrt())(a)


def by_repetition(a, b):
    n, m = len(a), len(b)
    return (a.repeat_interleave(m, 0) - b.repeat(n, 1)).pow(2).sum(1).sqrt().reshape(n, m)


def by_products_transposed(a, b):
    return torch.addmm((b * b).sum(1, keepdim=True) + (a * a).sum(1), b, a.T, alpha=-2).clamp_min(0).sqrt().T


def products_without_clamp(a, b):
    return ((a * a).sum(1)[:, None] + (b * b).sum(1) - 2 * a @ b.T).sqrt()


def root_of_differences(a, b):
    return (a[:, None] - b).sum(-1).sqrt()


def one_sum_for_all(a, b):
    return (a[:, None] - b).square().sum().sqrt()


def summed_over_points(a, b):
    return (a[:, None] - b).square().sum(dim=1).sqrt()


def dot_products(a, b):
    return a @ b.T


def with_lists(a, b):
    return torch.tensor([[math.dist(p, q) for q in b.tolist()] for p in a.tolist()])


def loop_over_features(a, b):
    total = torch.zeros(len(a), len(b))
    for k in range(a.shape[1]):
        total += (a[:, k, None] - b[:, k]) ** 2
    return total.sqrt()


def one_by_one(a, b):
    return (a - b).norm(dim=1)


def swapped_points(a, b):
    return torch.cdist(b, a)


def squared(a, b):
    return (a[:, None] - b).square().sum(-1)


def absolute(a, b):
    return torch.cdist(a, b, p=1)


def mean_of_squares(a, b):
    return (a[:, None] - b).square().mean(-1).sqrt()


def sum_without_squares(a, b):
    return (a[:, None] - b).sum(-1)


def not_summed(a, b):
    return (a[:, None] - b).square()


def with_loops(a, b):
    return torch.stack([torch.stack([(p - q).norm() for q in b]) for p in a])


def loop_over_rows(a, b):
    return torch.stack([(p - b).norm(dim=1) for p in a])


# ---------------------------------------------------------------------------------------------------------------------
# confusion_matrix


def by_accumulation(labels, predicted, classes):
    matrix = torch.zeros(classes, classes, dtype=torch.int64)
    return matrix.index_put_((labels, predicted), torch.ones_like(labels), accumulate=True)


def by_bincount(labels, predicted, classes):
    return torch.bincount(labels * classes + predicted, minlength=classes * classes).view(classes, classes)


def by_one_hot(labels, predicted, classes):
    one_hot = torch.nn.functional.one_hot
    return one_hot(labels, classes).float().T @ one_hot(predicted, classes).float()


def loop_over_classes(labels, predicted, classes):
    return torch.tensor([[((labels == i) & (predicted == j)).sum() for j in range(classes)] for i in range(classes)])


def loop_over_cells(labels, predicted, classes):
    matrix = torch.zeros(classes, classes, dtype=torch.int64)
    for i in range(classes):
        for j in range(classes):
            matrix[i, j] = ((labels == i) & (predicted == j)).sum()
    return matrix


def by_scatter(labels, predicted, classes):
    flat = torch.zeros(classes**2, dtype=torch.int64)
    return flat.scatter_add_(0, labels * classes + predicted, torch.ones_like(labels)).view(classes, classes)


def by_numpy_add(labels, predicted, classes):
    matrix = np.zeros((classes, classes), dtype=np.int64)
    np.add.at(matrix, (labels.numpy(), predicted.numpy()), 1)
    return torch.from_numpy(matrix)


def by_unique_pairs(labels, predicted, classes):
    pairs, counts = torch.stack([labels, predicted]).unique(dim=1, return_counts=True)
    return torch.zeros(classes, classes, dtype=torch.int64).index_put_(tuple(pairs), counts)


def in_bytes(labels, predicted, classes):
    matrix = torch.zeros(classes, classes, dtype=torch.uint8)
    return matrix.index_put_((labels, predicted), torch.tensor(1, dtype=torch.uint8), accumulate=True)


def no_minlength(labels, predicted, classes):
    return torch.bincount(labels * classes + predicted).reshape(classes, classes)


def ten_classes(labels, predicted, classes):
    return by_bincount(labels, predicted, 10)


def still_flat(labels, predicted, classes):
    return torch.bincount(labels * classes + predicted, minlength=classes * classes)


def into_a_copy(labels, predicted, classes):
    matrix = torch.zeros(classes, classes, dtype=torch.int64)
    matrix[labels][:, predicted] += 1
    return matrix


def with_lists_of_lists(labels, predicted, classes):
    matrix = [[0] * classes for _ in range(classes)]
    for i, j in zip(labels.tolist(), predicted.tolist(), strict=True):
        matrix[i][j] += 1
    return torch.tensor(matrix)


def with_a_generator(labels, predicted, classes):
    counts = collections.Counter((int(i), int(j)) for i, j in zip(labels, predicted, strict=True))
    return torch.tensor([[counts[i, j] for j in range(classes)] for i in range(classes)])


def counted_once(labels, predicted, classes):
    matrix = torch.zeros(classes, classes, dtype=torch.int64)
    matrix[labels, predicted] += 1
    return matrix


def swapped_axes(labels, predicted, classes):
    return by_bincount(predicted, labels, classes)


def classes_that_occur(labels, predicted, classes):
    return by_bincount(labels, predicted, int(labels.max()) + 1)


def only_correct_ones(labels, predicted, classes):
    return by_bincount(labels, predicted, classes).diag()


def shares(labels, predicted, classes):
    matrix = by_bincount(labels, predicted, classes)
    return matrix / matrix.sum(dim=1, keepdim=True)


def image_by_image(labels, predicted, classes):
    matrix = torch.zeros(classes, classes, dtype=torch.int64)
    for i, j in zip(labels, predicted, strict=True):
        matrix[i, j] += 1
    return matrix


# ---------------------------------------------------------------------------------------------------------------------
# patches


def six_axes(images, size):
    n, c, h, w = images.shape
    return images.reshape(n, c, h // size, size, w // size, size)


def joined(images, size, order):
    n, c = images.shape[:2]
    return six_axes(images, size).permute(order).reshape(n, -1, c, size, size)


def by_permute(images, size):
    return joined(images, size, (0, 2, 4, 1, 3, 5))


def by_unfold(images, size):
    return images.unfold(2, size, size).unfold(3, size, size).permute(0, 2, 3, 1, 4, 5).flatten(1, 2)


def by_einsum(images, size):
    return torch.einsum("ncyaxb->nyxcab", six_axes(images, size)).flatten(1, 2)


def strip_by_strip(images, size):
    strips = [strip.split(size, dim=3) for strip in images.split(size, dim=2)]
    return torch.stack([patch for strip in strips for patch in strip], dim=1)


def by_index(images, size):
    h, w = images.shape[2:]
    down, right = torch.arange(h).view(-1, 1, size, 1), torch.arange(w).view(1, -1, 1, size)
    return images[:, :, down, right].flatten(2, 3).transpose(1, 2)


def by_numpy_transpose(images, size):
    return torch.from_numpy(six_axes(images, size).numpy().transpose(0, 2, 4, 1, 3, 5).copy()).flatten(1, 2)


def by_unflatten(images, size):
    return images.unflatten(3, (-1, size)).unflatten(2, (-1, size)).movedim((2, 4), (1, 2)).flatten(1, 2)


def with_loops_over_patches(images, size):
    h, w = images.shape[2:]
    corners = [(y, x) for y in range(0, h, size) for x in range(0, w, size)]
    return torch.stack([images[:, :, y : y + size, x : x + size] for y, x in corners], dim=1)


def by_functional_unfold(images, size):
    columns = torch.nn.functional.unfold(images, size, stride=size)
    return columns.transpose(1, 2).unflatten(2, (-1, size, size))


def three_colors(images, size):
    n, _, h, w = images.shape
    split = images.reshape(n, 3, h // size, size, w // size, size)
    return split.permute(0, 2, 4, 1, 3, 5).reshape(n, -1, 3, size, size)


def view_after_permute(images, size):
    n, c = images.shape[:2]
    return six_axes(images, size).permute(0, 2, 4, 1, 3, 5).view(n, -1, c, size, size)


def as_floats(images, size):
    return by_functional_unfold(images.float(), size)


def height_and_width_swapped(images, size):
    n, c, w, h = images.shape
    split = images.reshape(n, c, h // size, size, w // size, size)
    return split.permute(0, 2, 4, 1, 3, 5).reshape(n, -1, c, size, size)


def only_reshape(images, size):
    n, c, _, _ = images.shape
    return images.reshape(n, -1, c, size, size)


def down_the_columns(images, size):
    return joined(images, size, (0, 4, 2, 1, 3, 5))


def transposed_patches(images, size):
    return joined(images, size, (0, 2, 4, 1, 5, 3))


def channels_last(images, size):
    return by_permute(images, size).permute(0, 1, 3, 4, 2)


def not_joined(images, size):
    return six_axes(images, size).permute(0, 2, 4, 1, 3, 5)


def mixed_colors(images, size):
    return joined(images, size, (0, 2, 4, 3, 5, 1))


def flat_patches(images, size):
    return by_permute(images, size).flatten(2)


RIGHT = {
    "scale_pixels": [by_division, by_float_and_factor, by_numpy, by_table, Scale()],
    "view_or_copy": [TRUTH, IN_CAPITALS],
    "normalize": [with_keepdim, with_none, by_batch_norm, channel_by_channel, by_sums],
    "held_out_split": [
        own_generator,
        numpy_generator,
        state_put_back,
        python_generator,
        by_random_split,
        sorted_parts,
    ],
    "pairwise_distances": [
        by_broadcasting,
        by_norm,
        by_products,
        by_cdist,
        by_numpy_norm,
        by_vmap,
        by_repetition,
        by_products_transposed,
    ],
    "confusion_matrix": [
        by_accumulation,
        by_bincount,
        by_one_hot,
        loop_over_classes,
        loop_over_cells,
        by_scatter,
        by_numpy_add,
        by_unique_pairs,
    ],
    "patches": [by_permute, by_unfold, by_einsum, by_index, by_numpy_transpose, by_unflatten],
}

WRONG = {
    "scale_pixels": [
        (only_float, "divide by 255"),
        (floor_division, "rounds down"),
        (stored_as_bytes, "still holds integers"),
        (by_256, "255, not 256"),
        (from_minus_one, "from -1 to 1"),
        (as_doubles, "twice the memory"),
        (by_largest, "brightest pixel"),
        (stretched, "brightest pixel"),
        (image_by_image_stretched, "brightest pixel"),
        (in_place_division, "Float can't be cast"),
    ],
    "view_or_copy": [
        (TRUTH | {"x[1:3]": "copy"}, "another start"),
        (TRUTH | {"x[[1, 2]]": "view"}, "list of indices"),
        (TRUTH | {"x.T": "copy"}, "swaps the two strides"),
        (TRUTH | {"x[x > 10]": "view"}, "mask"),
        (TRUTH | {"x.reshape(24)": "copy"}, "needs no copy"),
        (TRUTH | {"x.T.reshape(24)": "view"}, "jumps through memory"),
        (TRUTH | {"x.T.stride()": (6, 1)}, "the two swap"),
        (TRUTH | {"x[:, ::2].stride()": (3, 1)}, "skips every other box"),
        (TRUTH | {"x[:, ::2].stride()": (12, 2)}, "still a row of six"),
        (TRUTH | {"x.T.stride()": "view"}, "a pair of strides"),
        (TRUTH | {"x.T.stride()": "(1, 6)"}, "yours: '(1, 6)'"),
        (TRUTH | {"x.T": "both"}, "another form"),
        ({"x.T": "view"}, "is missing"),
        (list(TRUTH.values()), "not a dictionary"),
    ],
    "normalize": [
        (along_the_width, "lined them up with the width"),
        (one_for_all, "one mean and one deviation for everything"),
        (over((1, 2, 3)), "each image;"),
        (over((2, 3)), "each channel of each image"),
        (over((0,)), "each single pixel"),
        (over((1,)), "each pixel of each image"),
        (for_three_channels, "normalized the first three"),
        (three_by_view, "[1, 3, 1, 1]"),
        (only_centered, "divide by it"),
        (only_scaled, "the mean is not 0"),
        (no_parentheses, "only the mean"),
        (by_variance, "variance"),
        (in_place, "changed its argument"),
    ],
    "held_out_split": [
        (global_seed, "global random state"),
        (global_numpy_seed, "global random state"),
        (seeded_back, "global random state"),
        (from_one, "There is no image number"),
        (one_lost, "wrong sizes"),
        (rolled, "not shuffled"),
        (a_fifth, "wrong sizes"),
        (no_seed, "same seed gave two different"),
        (always_seed_0, "another seed gave the same"),
        (not_shuffled, "not shuffled"),
        (drawn_twice, "in both parts"),
        (with_repetition, "more than once"),
        (swapped_parts, "swapped"),
        (half_and_half, "wrong sizes"),
        (only_one_part, "return two things"),
        (floats_for_indices, "indices are integers"),
    ],
    "pairwise_distances": [
        (one_by_one, "every a should meet every b"),
        (swapped_points, "swapped"),
        (squared, "square root"),
        (absolute, "absolute values"),
        (mean_of_squares, "mean of the squares"),
        (sum_without_squares, "plus and minus cancel"),
        (not_summed, "sum over the last axis"),
        (one_sum_for_all, "single number"),
        (summed_over_points, "kept the features"),
        (dot_products, "dot products"),
        (products_without_clamp, "clamp(min=0)"),
        (root_of_differences, "root of a negative number"),
        (with_lists, "there is a loop"),
        (loop_over_features, "there is a loop"),
        (with_loops, "there is a loop"),
        (loop_over_rows, "there is a loop"),
    ],
    "confusion_matrix": [
        (counted_once, "counted once"),
        (swapped_axes, "swapped"),
        (classes_that_occur, "last class is missing"),
        (no_minlength, "`minlength=`"),
        (ten_classes, "10 rows"),
        (still_flat, "in one row"),
        (into_a_copy, "wrote into a copy"),
        (in_bytes, "after 255"),
        (only_correct_ones, "diagonal"),
        (shares, "shares"),
        (image_by_image, "there is a loop"),
        (with_lists_of_lists, "there is a loop"),
        (with_a_generator, "there is a loop"),
    ],
    "patches": [
        (only_reshape, "as they lie in memory"),
        (down_the_columns, "reading order"),
        (transposed_patches, "transposed"),
        (channels_last, "channels stand last"),
        (not_joined, "join them"),
        (mixed_colors, "colors are mixed up"),
        (flat_patches, "flat"),
        (strip_by_strip, "there is a loop"),
        (with_loops_over_patches, "there is a loop"),
        (by_functional_unfold, "works with floats only"),
        (as_floats, "torch.uint8"),
        (three_colors, "invalid for input"),
        (view_after_permute, "Use .reshape"),
        (height_and_width_swapped, "first patch of an image"),
    ],
}
