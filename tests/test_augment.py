"""Augmentation: every result is one of the allowed changes of its own image, and all of them occur."""

import copy
import subprocess
import sys

import pytest
import torch
from torch import nn

from torchcourse import augment

N = 400


def pictures(dtype: torch.dtype = torch.uint8, channels: int = 3, size: tuple[int, int] = (7, 6)) -> torch.Tensor:
    """Images without a zero and without symmetry, so that no two changes of one give the same."""
    pixels = torch.randint(1, 256, (N, channels, *size), generator=seeded(5), dtype=torch.uint8)
    return pixels.to(dtype)


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def moved(image: torch.Tensor, down: int, right: int) -> torch.Tensor:
    """One image [C, H, W], written with slices of a larger empty one: no code in common with what is tested."""
    _, height, width = image.shape
    canvas = image.new_zeros(len(image), 3 * height, 3 * width)
    canvas[:, height + down : 2 * height + down, width + right : 2 * width + right] = image
    return canvas[:, height : 2 * height, width : 2 * width]


@pytest.mark.parametrize("dtype", [torch.uint8, torch.float32])
@pytest.mark.parametrize("channels", [1, 3])
def test_shift_moves_each_image_by_one_of_the_offsets(dtype, channels):
    images = pictures(dtype, channels)
    result = augment.shift(images, 1, seeded(0))
    assert result.dtype == dtype and result.shape == images.shape
    offsets = [(down, right) for down in (-1, 0, 1) for right in (-1, 0, 1)]
    counts = dict.fromkeys(offsets, 0)
    for before, after in zip(images, result, strict=True):
        found = [offset for offset in offsets if torch.equal(after, moved(before, *offset))]
        assert len(found) == 1
        counts[found[0]] += 1
    assert min(counts.values()) > N / 9 / 3  # all nine, about equally often


@pytest.mark.parametrize("pixels", [2, 4])
def test_shift_reaches_every_offset_up_to_its_limit(pixels):
    images = pictures(channels=1, size=(9, 9))
    result = augment.shift(images, pixels, seeded(1))
    reach = range(-pixels, pixels + 1)
    found = [
        {(d, r) for d in reach for r in reach if torch.equal(after, moved(before, d, r))}
        for before, after in zip(images, result, strict=True)
    ]
    assert all(len(offsets) == 1 for offsets in found)
    downs, rights = zip(*(offsets.pop() for offsets in found), strict=True)
    assert set(downs) == set(rights) == set(reach)
    assert any(abs(down) != abs(right) for down, right in zip(downs, rights, strict=True))


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


CHANGES = {
    "flip": augment.flip,
    "shift": lambda images, generator=None: augment.shift(images, 2, generator),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_input_stays_and_generators_repeat(change):
    images = pictures()
    before = images.clone()
    first, again, other = (change(images, seeded(seed)) for seed in (0, 0, 1))
    assert torch.equal(images, before)
    assert torch.equal(first, again) and not torch.equal(first, other)
    torch.manual_seed(3)
    default = change(images)
    torch.manual_seed(3)
    assert torch.equal(default, change(images))
    torch.manual_seed(3)
    expected = torch.rand(1)
    torch.manual_seed(3)
    change(images, seeded(0))  # with a generator of its own it takes nothing from the default one
    assert torch.equal(torch.rand(1), expected)


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
@pytest.mark.parametrize("dtype", [torch.uint8, torch.float32])
def test_values_do_not_depend_on_the_layout(change, dtype):
    images = pictures(dtype)
    result = change(images.to(memory_format=torch.channels_last), seeded(0))
    assert torch.equal(result, change(images, seeded(0)))
    assert result.is_contiguous(memory_format=torch.channels_last)


ON_AN_ACCELERATOR = """
import torch
from torchcourse import augment, simgpu

gpu = simgpu.accelerator()
images = torch.randint(1, 256, (50, 3, 7, 6), dtype=torch.uint8)
for name, settings in {"flip": {}, "shift": {"pixels": 2}}.items():
    change = getattr(augment, name)
    here = change(images, generator=torch.Generator().manual_seed(0), **settings)
    there = change(images.to(gpu), generator=torch.Generator().manual_seed(0), **settings)
    assert there.device.type == gpu.type and there.dtype == torch.uint8
    assert torch.equal(there.cpu(), here), name  # the same luck on every device, if the generator is the CPU's
    assert change(images.to(gpu), **settings).device.type == gpu.type
"""


@pytest.mark.gpu
def test_images_on_an_accelerator():
    """In a process of its own: once the practice GPU is on, it stays."""
    done = subprocess.run([sys.executable, "-c", ON_AN_ACCELERATOR], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_augment_changes_images_in_training_only():
    layer = augment.Augment(flip=True, shift=1, generator=seeded(0))
    images = pictures()
    assert not torch.equal(layer(images), images)
    assert layer.eval()(images) is images
    assert not list(layer.parameters()) and not layer.state_dict()
    assert augment.Augment()(images) is images


def test_augment_does_what_its_parts_do():
    images = pictures()
    generator = seeded(2)
    parts = augment.shift(augment.flip(images, generator), 1, generator)
    assert torch.equal(augment.Augment(flip=True, shift=1, generator=seeded(2))(images), parts)


class Brightness(nn.Module):
    """A model whose logits tell shifted and mirrored copies apart: weighted sums over the image."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(42, 4)

    def forward(self, images):
        return self.layer(images.float().mean(1).flatten(1))


def test_averaged_is_the_mean_over_copies():
    model, images = Brightness().eval(), pictures()[:20]
    five = [torch.stack([moved(image, *by) for image in images]) for by in [(0, 0), (1, 0), (-1, 0), (0, 1), (0, -1)]]
    ten = five + [image.flip(-1) for image in five]
    for options, copies in [({}, five[:1]), ({"shift": 1}, five), ({"shift": 1, "flip": True}, ten)]:
        expected = torch.stack([model(image) for image in copies]).mean(0)
        torch.testing.assert_close(augment.Averaged(model, **options).eval()(images), expected)
    mirrored = (model(images) + model(images.flip(-1))) / 2
    torch.testing.assert_close(augment.Averaged(model, flip=True).eval()(images), mirrored)


def test_averaged_trains_the_model_itself():
    model, images = Brightness(), pictures()[:4]
    several = augment.Averaged(model, flip=True, shift=1).train()
    assert torch.equal(several(images), model(images))
    assert {id(p) for p in several.parameters()} == {id(p) for p in model.parameters()}


def test_models_with_augmentation_can_be_copied():
    layer = augment.Augment(shift=1, generator=seeded(0))
    assert torch.equal(copy.deepcopy(layer)(pictures()), layer(pictures()))
