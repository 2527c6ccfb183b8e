"""Recipes: short runs on real or synthetic data learn by a wide margin, repeat exactly, and run on an accelerator."""

import subprocess
import sys
from dataclasses import replace

import pytest
import torch

from torchcourse import CourseError, data, models, training
from torchcourse.recipes import Run, mnist

SHORT = replace(mnist.SETTINGS["99.4"], seen=4_800)


@pytest.fixture(scope="module")
def run() -> Run:
    return mnist.train(SHORT, seed=0, device="cpu")


def test_mnist_learns_in_a_tenth_of_an_epoch(run):
    ds = data.load("mnist", "test").subset(range(1000))
    assert training.evaluate(run.model, data.loader(ds, 500)).accuracy > 0.9


def test_result_says_what_was_done(run):
    assert run.seconds > 0
    assert len(run.history) == 1 and run.history[0].number == 1
    assert run.model(data.load("mnist", "test").images[:3]).shape == (3, 10)


def test_same_seed_same_weights_another_seed_others(run):
    tiny = replace(SHORT, seen=400)
    weights = [
        torch.cat([p.flatten() for p in mnist.train(tiny, seed, device="cpu").model.parameters()]) for seed in (3, 3, 4)
    ]
    assert torch.equal(weights[0], weights[1])
    assert not torch.equal(weights[0], weights[2])


def test_the_stem_keeps_the_weights_that_come_from_the_images(run):
    images = data.load("mnist", "train")
    stem = next(layer for layer in run.model.modules() if isinstance(layer, torch.nn.Conv2d))
    torch.manual_seed(0)
    fresh = next(layer for layer in mnist.network(SHORT, images).modules() if isinstance(layer, torch.nn.Conv2d))
    assert torch.equal(stem.weight, fresh.weight) and not stem.weight.requires_grad
    directions = stem.weight[: len(stem.weight) // 2].flatten(1)
    assert torch.equal(stem.weight[len(directions) :].flatten(1), -directions)
    assert (torch.nn.functional.normalize(directions) @ torch.nn.functional.normalize(directions).T).allclose(
        torch.eye(len(directions)), atol=1e-3
    )


def test_several_epochs_and_a_set_of_your_own():
    ds = data.load("fashion_mnist", "train").subset(range(640))
    seen = mnist.train(replace(SHORT, seen=1920), images=ds, device="cpu")
    assert len(seen.history) == 3
    again = training.evaluate(seen.model, data.loader(ds, 320))
    assert again.accuracy > 0.4  # of clothes that it saw three times


def test_few_images_make_one_pass_over_different_images(monkeypatch):
    passed = []
    monkeypatch.setattr(mnist.training, "fit", lambda model, batches, *args, **options: passed.append(list(batches)))
    ds = data.load("mnist", "train")
    mnist.train(replace(SHORT, seen=1400), images=ds, device="cpu")
    images = torch.cat([images for images, labels in passed[0]])
    assert len(images) == 1400
    assert len({image.numpy().tobytes() for image in images}) > 1300  # real digits: all different


def test_settings_ask_for_more_images_the_higher_they_are():
    settings = [mnist.SETTINGS[name] for name in ("99.0", "99.4", "99.5")]
    assert settings == sorted(settings, key=lambda settings: settings.seen)
    with pytest.raises(CourseError, match=r"99\.4"):
        mnist.train("99.9")
    with pytest.raises(CourseError, match=r"99\.4"):
        mnist.train(99.4)  # a number, not a name


def test_bfloat16_path_runs_and_keeps_float32_weights():
    run = mnist.train(replace(SHORT, seen=200, widths=(8, 8, 8)), device="cpu", dtype=torch.bfloat16)
    assert all(parameter.dtype == torch.float32 for parameter in run.model.parameters())
    assert run.history[0].training.loss > 0


def test_the_model_normalizes_as_its_data_set_wants():
    model = mnist.network(SHORT, data.load("fashion_mnist", "train"))
    layer = next(module for module in model.modules() if isinstance(module, models.Normalize))
    assert torch.equal(layer.scale, models.Normalize("fashion_mnist").scale)


ON_AN_ACCELERATOR = """
import torch
from torchcourse import data, simgpu
from torchcourse.recipes import cifar, mnist

gpu = simgpu.accelerator()
ds = data.load("mnist", "train")
for images in ds, ds.to(gpu):
    run = mnist.train(mnist.Setting(seen=400), images=images, device=gpu)
    assert next(run.model.parameters()).device.type == gpu.type
    assert run.history[0].training.loss < 50  # two steps on random weights: a number, not nan
few = data.load("cifar10", "train").subset(slice(64)).to(gpu)
run = cifar.train(cifar.Setting((8, 8, 8), stride=2, epochs=1, batch_size=32, shift=2), images=few, device=gpu)
assert run.history[0].training.loss < 50
"""


@pytest.mark.gpu
def test_runs_on_an_accelerator():
    """In a process of its own: once the practice GPU is on, it stays."""
    done = subprocess.run([sys.executable, "-c", ON_AN_ACCELERATOR], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
