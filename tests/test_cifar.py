"""The networks and the recipe for CIFAR-10: shapes, whitening, orthogonal steps, learning; and what its ideas gain."""

import itertools
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from tools.bench import gains
from torchcourse import CourseError, data, models, optim, training
from torchcourse.data import ImageSet
from torchcourse.models.cifar import whitening
from torchcourse.recipes import cifar

SMALL = cifar.Setting((8, 16, 16), stride=2, epochs=2, batch_size=32, learning_rate=0.2, shift=1)
SHORT = replace(SMALL, epochs=1)


def stripes(n: int, seed: int = 0) -> ImageSet:
    """Noisy images 32×32 that can be told apart: stripes across, stripes down, or none. Mirroring changes no class."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(3, (n,), generator=generator)
    wave = 60 * torch.sin(torch.arange(32) * 1.5)
    patterns = torch.stack([wave.view(32, 1).expand(32, 32), wave.view(1, 32).expand(32, 32), torch.zeros(32, 32)])
    noise = 40 * torch.randn((n, 3, 32, 32), generator=generator)
    pixels = (128 + patterns[labels].unsqueeze(1) + noise).clamp(0, 255).to(torch.uint8)
    return ImageSet(pixels, labels, ("across", "down", "none"), "stripes", "drawn")


def smooth(n: int, seed: int = 0) -> torch.Tensor:
    """Normalized images whose neighboring pixels resemble each other, as in photographs."""
    generator = torch.Generator().manual_seed(seed)
    rough = torch.randn((n, 3, 34, 34), generator=generator)
    return 2 * F.avg_pool2d(rough, 3, stride=1) + 0.1 * torch.randn((n, 3, 32, 32), generator=generator)


def test_the_tutorial_network_is_the_one_of_the_tutorial():
    net = models.CifarTutorial()
    assert net(torch.randn(2, 3, 32, 32)).shape == (2, 10)
    assert sum(p.numel() for p in net.parameters()) == 62_006
    assert [tuple(layer.weight.shape) for layer in net.modules() if isinstance(layer, nn.Conv2d | nn.Linear)] == [
        (6, 3, 5, 5),
        (16, 6, 5, 5),
        (120, 400),
        (84, 120),
        (10, 84),
    ]


def test_a_batch_of_one_stays_a_batch():
    for net in (models.CifarTutorial(), models.CifarTutorial(batch_norm=True), models.CifarNet((8, 16, 16))):
        assert net.eval()(torch.randn(1, 3, 32, 32)).shape == (1, 10)


@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("residual", [True, False])
def test_shapes_of_the_quick_network(stride, residual):
    net = models.CifarNet((8, 16, 24), stride, residual, classes=7)
    images = torch.randn(3, 3, 32, 32)
    assert net.features(images).shape == (3, 24)
    assert net(images).shape == (3, 7)
    net.head = nn.Linear(24, 2)  # as in fine-tuning
    assert net(images).shape == (3, 2)


def test_a_residual_stage_adds_to_what_it_gets():
    stage = models.CifarNet((8, 16, 16), residual=True).stages[0]
    nn.init.zeros_(stage.norm2.weight)
    images = torch.randn(2, 32, 16, 16)
    without = F.gelu(stage.norm1(F.max_pool2d(stage.conv1(images), 2)))
    torch.testing.assert_close(stage(images), F.gelu(without))  # nothing is changed when there is nothing to add


@pytest.mark.parametrize("stride", [1, 2])
def test_the_stem_whitens(stride):
    images = smooth(200)
    net = models.CifarNet((8, 16, 16), stride)
    before = net.stem.weight.clone()
    assert net.whiten(images) is net
    assert not net.stem.weight.requires_grad
    assert not torch.equal(before, net.stem.weight)

    out = net.stem(images)
    torch.testing.assert_close(out[:, 16:], -out[:, :16])
    channels = out[:, :16, 1:-1, 1:-1].transpose(0, 1).flatten(1)  # without the border, where the stem sees zeros
    torch.testing.assert_close(channels.cov(), torch.eye(16), atol=0.15, rtol=0)
    assert images.transpose(0, 1).flatten(1).cov().diag().max() < 1.2  # the images themselves were not louder
    neighbors = F.unfold(images, 2, stride=2).transpose(1, 2).flatten(0, 1).T.corrcoef()
    assert (neighbors - torch.eye(12)).abs().max() > 0.5  # and far from uncorrelated


def test_whitening_begins_with_what_varies_most():
    images = smooth(200)
    lengths = whitening(images, 2).flatten(1).norm(dim=1)  # 1 / standard deviation
    assert (lengths.diff() >= 0).all()


def test_whitening_does_not_blow_up_a_direction_without_variance():
    images = torch.zeros(4, 3, 8, 8)
    assert whitening(images, 2).isfinite().all()


@pytest.mark.parametrize("shape", [(16, 72), (72, 16), (32, 32)])
def test_orthogonal_keeps_directions_and_makes_all_equally_long(shape):
    matrix = torch.randn(shape, generator=torch.Generator().manual_seed(0))
    u, _, v = torch.linalg.svd(matrix, full_matrices=False)
    result = optim.orthogonal(matrix, rounds=6)
    within = u.T @ result @ v.T  # in the matrix' own directions: diagonal, and about 1 there
    assert within.diag().min() > 0.6 and within.diag().max() < 1.3
    assert (within - within.diag().diag()).abs().max() < 1e-3


def test_muon_steps_are_orthogonal_whatever_the_size_of_the_gradient():
    steps = []
    for scale in (1e-3, 1e3):
        weight = nn.Parameter(torch.randn((8, 4, 3, 3), generator=torch.Generator().manual_seed(0)))
        weight.grad = scale * torch.randn((8, 4, 3, 3), generator=torch.Generator().manual_seed(1))
        start = weight.detach() * (len(weight) ** 0.5 / weight.detach().norm())
        optim.Muon([{"params": [weight]}], lr=0.1).step()
        steps.append((weight.detach() - start).flatten(1) / -0.1)
    torch.testing.assert_close(steps[0], steps[1], atol=1e-3, rtol=0)
    sizes = torch.linalg.svdvals(steps[0])
    assert sizes.min() > 0.3 and sizes.max() < 1.4


def test_muon_trains_the_other_groups_by_nesterov_momentum():
    mine, reference = (nn.Parameter(torch.arange(4.0)) for _ in range(2))
    muon = optim.Muon([{"params": [mine], "lr": 0.1, "orthogonal": False, "weight_decay": 0.01}], momentum=0.6)
    sgd = torch.optim.SGD([reference], lr=0.1, momentum=0.6, nesterov=True)
    for _ in range(4):
        for parameter, optimizer in ((mine, muon), (reference, sgd)):
            optimizer.zero_grad()
            (parameter.cos().sum()).backward()
            if optimizer is sgd:
                with torch.no_grad():
                    reference.mul_(1 - 0.1 * 0.01)
            optimizer.step()
    torch.testing.assert_close(mine, reference)


def test_muon_leaves_alone_what_has_no_gradient():
    weight = nn.Parameter(torch.ones(4, 4))
    optim.Muon([{"params": [weight]}]).step()
    assert torch.equal(weight, torch.ones(4, 4))


def test_the_recipe_learns():
    run = cifar.train(SMALL, images=stripes(600), validation=stripes(300, seed=1))
    assert len(run.history) == SMALL.epochs
    assert run.history[-1].validation.accuracy > 0.8  # a third is chance
    assert run.seconds > 0
    assert training.evaluate(run.model, data.loader(stripes(300, seed=2), 100)).accuracy > 0.8


def test_the_recipe_gives_the_same_network_for_the_same_seed():
    def state(seed: int) -> dict[str, torch.Tensor]:
        return cifar.train(SHORT, seed, images=stripes(96)).model.state_dict()

    first, again, other = state(0), state(0), state(1)
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert any(not torch.equal(first[name], other[name]) for name in first)


def test_the_recipe_leaves_the_stem_alone():
    images = stripes(96)
    run = cifar.train(SHORT, images=images, device="cpu")
    net = next(module for module in run.model.modules() if isinstance(module, models.CifarNet))
    expected = models.CifarNet().whiten(models.Normalize("cifar10")(images.images))
    assert torch.equal(net.stem.weight, expected.stem.weight)


@pytest.mark.parametrize("name", cifar.SETTINGS)
def test_every_setting_runs_two_steps(name):
    small = replace(cifar.SETTINGS[name], batch_size=4, epochs=1)
    run = cifar.train(small, images=stripes(8))
    assert torch.isfinite(torch.tensor(run.history[0].training.loss))


def test_an_unknown_setting_is_answered_with_those_there_are():
    with pytest.raises(CourseError, match="15 s"):
        cifar.train("fast", images=stripes(8))


def test_without_any_image_there_is_a_sentence():
    with pytest.raises(CourseError, match="no batch"):
        cifar.train(SMALL, images=stripes(8))


ON_THE_PRACTICE_GPU = """
import torch
from test_cifar import SHORT, stripes
from torchcourse import simgpu
from torchcourse.recipes import cifar

gpu = simgpu.enable()
for device in (gpu, "cpu"):
    run = cifar.train(SHORT, images=stripes(64), device=device, dtype=torch.float32)
    print(next(run.model.parameters()).device.type, run.history[0].training.loss)
"""


def test_the_recipe_runs_on_the_practice_gpu():
    # In a process of its own: the practice GPU wants to be there before the first backward pass.
    paths = os.pathsep.join([str(Path(__file__).parent), str(Path(__file__).parents[1])])
    done = subprocess.run(
        [sys.executable, "-c", ON_THE_PRACTICE_GPU],
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": paths},
        check=False,
    )
    if "CourseError" in done.stderr:  # this PyTorch lacks the mechanism
        pytest.skip(done.stderr.splitlines()[-1])
    assert not done.returncode, done.stderr
    (there, loss), (_, expected) = (line.split() for line in done.stdout.splitlines()[-2:])
    assert there == "simgpu"
    assert float(loss) == pytest.approx(float(expected), rel=1e-3)


def test_the_recipe_takes_drawn_data(monkeypatch, tmp_path):
    monkeypatch.setenv("TORCHCOURSE_DATA", str(tmp_path))
    monkeypatch.setenv("TORCHCOURSE_OFFLINE", "1")
    images = data.load("cifar10", "train").subset(slice(0, 64))
    run = cifar.train(SHORT, images=images)
    assert images.origin == "drawn"
    assert 0 <= run.history[0].training.accuracy <= 1


# The measurement of the gains.


def test_steps_change_something_and_keep_what_came_before():
    story = gains.steps()
    assert len({title for title, _ in story}) == len(story)
    for (_, before), (title, now) in itertools.pairwise(story):
        changed = {name for name in vars(now) if vars(before)[name] != vars(now)[name]}
        assert len(changed - {"learning_rate"}) == 1, title


def test_interval_of_known_numbers():
    found = gains.interval([1.0, 2.0, 3.0, 4.0, 5.0])
    assert found["mean"] == 3
    assert found["high"] - found["mean"] == pytest.approx(2.776 * 2.5**0.5 / 5**0.5)
    assert found["mean"] - found["low"] == pytest.approx(found["high"] - found["mean"])


def test_gains_compare_seed_by_seed(monkeypatch):
    monkeypatch.setattr(gains, "VALIDATION", 40)
    monkeypatch.setattr(gains, "BATCH_SIZE", 16)
    monkeypatch.setattr(gains, "steps", lambda steps=gains.steps: steps()[:2])
    results = gains.compared(stripes(88), images=48, epochs=2, seeds=2)
    assert [step["title"] for step in results["steps"]] == ["pixels from 0 to 1", "+ pixels from −1 to 1"]
    first, second = results["steps"]
    assert first["gain"] is None
    differences = [b - a for a, b in zip(first["accuracy"]["seeds"], second["accuracy"]["seeds"], strict=True)]
    assert second["gain"]["seeds"] == pytest.approx(differences)
    assert results["setting"]["images_seen"] == 96
