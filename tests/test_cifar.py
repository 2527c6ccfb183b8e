"""The networks and the recipe for CIFAR-10: shapes, whitening, orthogonal steps, learning; and what its ideas gain."""

from dataclasses import replace

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
    return ImageSet(pixels, labels, ("across", "down", "none"), "stripes", "synthetic")


def smooth(n: int, seed: int = 0) -> torch.Tensor:
    """Normalized images whose neighboring pixels resemble each other, as in photographs."""
    generator = torch.Generator().manual_seed(seed)
    rough = torch.randn((n, 3, 34, 34), generator=generator)
    return 2 * F.avg_pool2d(rough, 3, stride=1) + 0.1 * torch.randn((n, 3, 32, 32), generator=generator)


def test_shapes_of_the_networks():
    tutorial, images = models.CifarTutorial(), torch.randn(3, 3, 32, 32)
    assert sum(p.numel() for p in tutorial.parameters()) == 62_006
    shapes = [tuple(layer.weight.shape) for layer in tutorial.modules() if isinstance(layer, nn.Conv2d | nn.Linear)]
    assert shapes == [(6, 3, 5, 5), (16, 6, 5, 5), (120, 400), (84, 120), (10, 84)]
    quick = [
        models.CifarNet((8, 16, 24), stride, residual, classes=7) for stride in (1, 2) for residual in (True, False)
    ]
    for net in (tutorial, models.CifarTutorial(batch_norm=True), *quick):
        assert net(images).shape == (3, 7 if net in quick else 10)
        assert len(net.eval()(images[:1])) == 1, "a batch of one stays a batch"
    assert net.features(images).shape == (3, 24)
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
    lengths = whitening(images, 2).flatten(1).norm(dim=1)  # 1 / standard deviation
    assert (lengths.diff() >= 0).all(), "what varies most comes first"
    assert whitening(torch.zeros(4, 3, 8, 8), 2).isfinite().all()
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
        still = nn.Parameter(torch.ones(4, 4))  # without a gradient
        optim.Muon([{"params": [weight, still]}], lr=0.1).step()
        steps.append((weight.detach() - start).flatten(1) / -0.1)
        assert torch.equal(still, torch.ones(4, 4))
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


def test_the_recipe_learns():
    run = cifar.train(SMALL, images=stripes(600), validation=stripes(300, seed=1))
    assert len(run.history) == SMALL.epochs and run.seconds > 0
    assert run.history[-1].validation.accuracy > 0.8  # a third is chance
    assert training.evaluate(run.model, data.loader(stripes(300, seed=2), 100)).accuracy > 0.8


def test_the_recipe_repeats_itself_and_leaves_the_stem_alone():
    images = stripes(96)
    first, again, other = (cifar.train(SHORT, seed, images=images, device="cpu").model for seed in (0, 0, 1))
    one, same, another = (model.state_dict() for model in (first, again, other))
    assert all(torch.equal(one[name], same[name]) for name in one)
    assert any(not torch.equal(one[name], another[name]) for name in one)
    net = next(module for module in first.modules() if isinstance(module, models.CifarNet))
    expected = models.CifarNet().whiten(models.Normalize("cifar10")(images.images))
    assert torch.equal(net.stem.weight, expected.stem.weight)


@pytest.mark.parametrize("name", cifar.SETTINGS)
def test_every_setting_runs_two_steps(name):
    small = replace(cifar.SETTINGS[name], batch_size=4, epochs=1)
    run = cifar.train(small, images=stripes(8))
    assert torch.isfinite(torch.tensor(run.history[0].training.loss))


def test_a_wrong_call_is_answered_in_a_sentence():
    with pytest.raises(CourseError, match="15 s"):
        cifar.train("fast", images=stripes(8))
    with pytest.raises(CourseError, match="no batch"):
        cifar.train(SMALL, images=stripes(8))


# The measurement of the gains.


def test_interval_of_known_numbers():
    found = gains.interval([1.0, 2.0, 3.0, 4.0, 5.0])
    half = 2.776 * 2.5**0.5 / 5**0.5
    assert (found["low"], found["mean"], found["high"]) == pytest.approx((3 - half, 3, 3 + half))


def test_gains_are_compared_seed_by_seed(monkeypatch):
    monkeypatch.setattr(gains, "VALIDATION", 40)
    monkeypatch.setattr(gains, "BATCH_SIZE", 16)
    monkeypatch.setattr(gains, "steps", lambda steps=gains.steps: steps()[:2])
    results = gains.compared(stripes(88), images=48, epochs=2, seeds=2)
    first, second = results["steps"]
    differences = [b - a for a, b in zip(first["accuracy"]["seeds"], second["accuracy"]["seeds"], strict=True)]
    assert first["gain"] is None and second["gain"]["seeds"] == pytest.approx(differences)
    assert results["setting"]["images_seen"] == 96
