"""Recipes: short runs on real or synthetic data learn by a wide margin, repeat exactly, and run on an accelerator."""

from dataclasses import replace

import pytest
import torch

from torchcourse import CourseError, data, models, simgpu, training
from torchcourse.recipes import cifar, mnist

SHORT = replace(mnist.SETTINGS["99.4"], seen=4_800)


def test_mnist_learns_in_a_tenth_of_an_epoch():
    run = mnist.train(SHORT, seed=0, device="cpu")
    images = data.load("mnist", "train")
    ds = data.load("mnist", "test").subset(range(1000))
    assert training.evaluate(run.model, data.loader(ds, 500)).accuracy > 0.9
    assert run.seconds > 0 and [epoch.number for epoch in run.history] == [1]
    # The stem keeps the weights that come from the images.
    stem = next(layer for layer in run.model.modules() if isinstance(layer, torch.nn.Conv2d))
    torch.manual_seed(0)
    fresh = next(layer for layer in mnist.network(SHORT, images).modules() if isinstance(layer, torch.nn.Conv2d))
    assert torch.equal(stem.weight, fresh.weight) and not stem.weight.requires_grad
    directions = stem.weight[: len(stem.weight) // 2].flatten(1)
    assert torch.equal(stem.weight[len(directions) :].flatten(1), -directions)
    units = torch.nn.functional.normalize(directions)
    torch.testing.assert_close(units @ units.T, torch.eye(len(units)), atol=1e-3, rtol=0)


def test_same_seed_same_weights_another_seed_others():
    tiny = replace(SHORT, seen=400)
    runs = [mnist.train(tiny, seed, device="cpu") for seed in (3, 3, 4)]
    one, again, other = (torch.cat([p.flatten() for p in run.model.parameters()]) for run in runs)
    assert torch.equal(one, again) and not torch.equal(one, other)


def test_several_epochs_and_a_set_of_your_own():
    ds = data.load("fashion_mnist", "train").subset(range(640))
    run = mnist.train(replace(SHORT, seen=1920), images=ds, device="cpu")
    assert len(run.history) == 3
    assert training.evaluate(run.model, data.loader(ds, 320)).accuracy > 0.4  # of clothes that it saw three times
    layer = next(module for module in run.model.modules() if isinstance(module, models.Normalize))
    assert torch.equal(layer.scale, models.Normalize("fashion_mnist").scale), "as this data set wants"


def test_few_images_make_one_pass_over_different_images(monkeypatch):
    passed = []
    monkeypatch.setattr(mnist.training, "fit", lambda model, batches, *args, **options: passed.append(list(batches)))
    mnist.train(replace(SHORT, seen=1400), images=data.load("mnist", "train"), device="cpu")
    images = torch.cat([images for images, labels in passed[0]])
    assert len(images) == 1400
    assert len({image.numpy().tobytes() for image in images}) > 1300  # real digits: all different


def test_an_unknown_setting_is_answered_with_those_there_are():
    for wrong in ("99.9", 99.4):  # a number is not a name
        with pytest.raises(CourseError, match=r"99\.4"):
            mnist.train(wrong)


def test_bfloat16_path_runs_and_keeps_float32_weights():
    run = mnist.train(replace(SHORT, seen=200, widths=(8, 8, 8)), device="cpu", dtype=torch.bfloat16)
    assert all(parameter.dtype == torch.float32 for parameter in run.model.parameters())
    assert run.history[0].training.loss > 0


@pytest.mark.gpu
def test_recipes_run_on_an_accelerator():
    gpu = simgpu.accelerator()
    ds = data.load("mnist", "train")
    for images in ds, ds.to(gpu):
        run = mnist.train(mnist.Setting(seen=400), images=images, device=gpu)
        assert next(run.model.parameters()).device.type == gpu.type
        assert run.history[0].training.loss < 50  # two steps on random weights: a number, not nan
    few = data.load("cifar10", "train").subset(slice(64))
    small = cifar.Setting((8, 8, 8), stride=2, epochs=1, batch_size=32, shift=2)
    there, here = (
        cifar.train(small, images=few.to(device), device=device, dtype=torch.float32) for device in (gpu, "cpu")
    )
    assert next(there.model.parameters()).device.type == gpu.type
    expected = pytest.approx(here.history[0].training.loss, rel=1e-3)
    assert there.history[0].training.loss == expected or (gpu.type != "simgpu" and there.history[0].training.loss < 50)
