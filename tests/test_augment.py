"""Augmentation: every result is one of the allowed changes of its own image, and all of them occur."""

import copy
import functools

import pytest
import torch
from torch import nn

from torchcourse import augment, simgpu

N = 400


def pictures(dtype: torch.dtype = torch.uint8) -> torch.Tensor:
    """Images without a zero and without symmetry, so that no two changes of one give the same."""
    return torch.randint(1, 256, (N, 3, 7, 6), generator=seeded(5), dtype=torch.uint8).to(dtype)


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def moved(image: torch.Tensor, down: int, right: int) -> torch.Tensor:
    """One image [C, H, W], written with slices of a larger empty one: no code in common with what is tested."""
    _, height, width = image.shape
    canvas = image.new_zeros(len(image), 3 * height, 3 * width)
    canvas[:, height + down : 2 * height + down, width + right : 2 * width + right] = image
    return canvas[:, height : 2 * height, width : 2 * width]


@pytest.mark.parametrize(("pixels", "dtype"), [(1, torch.uint8), (1, torch.float32), (3, torch.uint8)])
def test_shift_moves_each_image_by_one_of_the_offsets(pixels, dtype):
    images = pictures(dtype)
    result = augment.shift(images, pixels, seeded(0))
    assert result.dtype == dtype and result.shape == images.shape
    reach = range(-pixels, pixels + 1)
    counts = {(down, right): 0 for down in reach for right in reach}
    for before, after in zip(images, result, strict=True):
        (found,) = [offset for offset in counts if torch.equal(after, moved(before, *offset))]
        counts[found] += 1
    assert min(counts.values()) > N / len(counts) / 4  # all of them, about equally often


def test_shift_fills_the_edge_with_the_mirror_image():
    images = pictures(torch.float32)
    result = augment.shift(images, 2, seeded(0), mode="reflect")
    assert result.min() > 0  # no black edge
    whole = torch.nn.functional.pad(images, (2, 2, 2, 2), mode="reflect")
    for i in range(20):
        assert any(torch.equal(result[i], whole[i, :, d : d + 7, r : r + 6]) for d in range(5) for r in range(5))


def test_flip_mirrors_half():
    images = pictures()
    result = augment.flip(images, seeded(0))
    same = (result == images).flatten(1).all(1)
    mirrored = (result == images.flip(-1)).flatten(1).all(1)
    assert (same ^ mirrored).all()
    assert 0.4 < mirrored.float().mean() < 0.6


@pytest.mark.parametrize("name", ["flip", "shift"])
def test_input_stays_generators_repeat_and_the_layout_does_not_matter(name):
    def change(images, generator=None):
        return augment.flip(images, generator) if name == "flip" else augment.shift(images, 2, generator)

    images = pictures()
    before = images.clone()
    first, again, other = (change(images, seeded(seed)) for seed in (0, 0, 1))
    assert torch.equal(images, before)
    assert torch.equal(first, again) and not torch.equal(first, other)
    results = []
    for _ in range(2):
        torch.manual_seed(3)
        change(images, seeded(0))  # with a generator of its own it takes nothing from the default one
        results.append(change(images))
        torch.manual_seed(3)
        results.append(change(images))
    assert all(torch.equal(result, results[0]) for result in results)
    for dtype in (torch.uint8, torch.float32):
        result = change(images.to(dtype, memory_format=torch.channels_last), seeded(0))
        assert torch.equal(result, first.to(dtype)) and result.is_contiguous(memory_format=torch.channels_last)


def test_augment_does_what_its_parts_do_in_training_only():
    images, generator = pictures(), seeded(0)
    layer = augment.Augment(flip=True, shift=1, generator=seeded(0))
    twin = copy.deepcopy(layer)
    parts = augment.shift(augment.flip(images, generator), 1, generator)
    assert torch.equal(layer(images), parts) and torch.equal(twin(images), parts) and not torch.equal(parts, images)
    assert layer.eval()(images) is images and augment.Augment()(images) is images
    assert not layer.state_dict()


def test_averaged_is_the_mean_over_copies_and_trains_the_model_itself():
    images = pictures(torch.float32)[:20]
    # Its logits tell shifted and mirrored copies apart: weighted sums over the image.
    model = nn.Sequential(nn.Flatten(), nn.Linear(126, 4))
    five = [torch.stack([moved(image, *by) for image in images]) for by in [(0, 0), (1, 0), (-1, 0), (0, 1), (0, -1)]]
    ten = five + [image.flip(-1) for image in five]
    for shift, flip, copies in ((0, False, five[:1]), (1, False, five), (0, True, ten[::5]), (1, True, ten)):
        several = augment.Averaged(model, flip, shift)
        expected = torch.stack([model(image) for image in copies]).mean(0)
        torch.testing.assert_close(several.eval()(images), expected)
        assert torch.equal(several.train()(images), model(images))
        assert {id(p) for p in several.parameters()} == {id(p) for p in model.parameters()}


@pytest.mark.gpu
def test_images_on_an_accelerator():
    gpu, images = simgpu.accelerator(), pictures()
    for change in (augment.flip, functools.partial(augment.shift, pixels=2)):
        here, there = change(images, generator=seeded(0)), change(images.to(gpu), generator=seeded(0))
        assert there.device.type == gpu.type and there.dtype == torch.uint8
        assert torch.equal(there.cpu(), here)  # the same luck on every device, if the generator is the CPU's
        assert change(images.to(gpu)).device.type == gpu.type
