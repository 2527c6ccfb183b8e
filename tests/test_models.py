"""The networks: shapes and sizes that the chapters name, and the layer that turns stored pixels into inputs."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from torchcourse import CourseError, data, models


def parameters(model: nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


@pytest.mark.parametrize("name", data.NAMES)
def test_normalize_is_what_the_formula_says(name):
    means, deviations = (torch.tensor(values).view(-1, 1, 1) for values in data.MEAN_STD[name])
    pixels = torch.randint(256, (5, len(means), 8, 6), dtype=torch.uint8)
    expected = (pixels.float() / 255 - means) / deviations
    for images in (pixels, pixels.float(), pixels.to(memory_format=torch.channels_last)):
        before = images.clone()
        normalized = models.Normalize(name)(images)
        torch.testing.assert_close(normalized, expected)
        assert normalized.is_contiguous(memory_format=torch.channels_last)
        assert torch.equal(images, before)


def test_normalize_gives_mean_0_and_deviation_1_on_the_training_set():
    pixels = data.load("mnist", "train").images
    normalized = models.Normalize("mnist")(pixels)
    assert abs(normalized.mean().item()) < 0.2 and abs(normalized.std().item() - 1) < 0.2  # synthetic digits, too


def test_normalize_has_nothing_to_save_and_moves_with_the_model():
    layer = models.Normalize("cifar10")
    assert not layer.state_dict()
    assert layer.to("meta")(torch.zeros(1, 3, 4, 4, device="meta", dtype=torch.uint8)).device.type == "meta"
    with pytest.raises(CourseError, match="cifar10"):
        models.Normalize("cifar")


def test_mnist_example_is_the_official_network():
    """Layer by layer as in the forward of PyTorch's MNIST example, with dropout off, up to its log_softmax."""
    model = models.MnistExample().eval()
    conv1, conv2, fc1, fc2 = (layer for layer in model if list(layer.parameters()))
    x = torch.randn(3, 1, 28, 28)
    y = F.max_pool2d(F.relu(conv2(F.relu(conv1(x)))), 2)
    y = fc2(F.relu(fc1(torch.flatten(y, 1))))
    assert torch.equal(model(x), y)
    assert parameters(model) == 1_199_882
    assert [layer.p for layer in model if isinstance(layer, nn.Dropout)] == [0.25, 0.5]


@pytest.mark.parametrize("batch", [1, 7])
@pytest.mark.parametrize("network", [models.MnistExample, models.MnistNet])
def test_mnist_networks_take_images_and_give_logits(network, batch):
    model = network().eval()
    logits = model(torch.randn(batch, 1, 28, 28))
    assert logits.shape == (batch, 10)
    assert logits.min() < 0 < logits.max()  # neither probabilities nor their logarithms


def test_mnist_net_is_small_and_lies_pixel_by_pixel():
    model = models.MnistNet()
    assert parameters(model) < 100_000
    convolutions = [module for module in model.modules() if isinstance(module, nn.Conv2d)]
    assert all(layer.weight.is_contiguous(memory_format=torch.channels_last) for layer in convolutions)
    assert parameters(models.MnistNet(widths=(8, 16, 32))) < parameters(models.MnistNet(widths=(16, 32, 64)))


def test_every_part_of_the_networks_learns():
    for network in (models.MnistExample(), models.MnistNet()):
        F.cross_entropy(network(torch.randn(4, 1, 28, 28)), torch.arange(4)).backward()
        assert all(parameter.grad.abs().sum() > 0 for parameter in network.parameters())


@pytest.mark.parametrize(
    ("options", "size"), [({}, 8), ({"stride": 2}, 4), ({"padding": 0}, 6), ({"pool": True}, 4), ({"kernel": 5}, 8)]
)
def test_conv_block_shapes(options, size):
    block = models.ConvBlock(3, 6, **options)
    result = block(torch.randn(2, 3, 8, 8))
    assert result.shape == (2, 6, size, size) and result.min() >= 0
    assert all(module.bias is None for module in block if isinstance(module, nn.Conv2d))


def test_pooling_before_batch_norm_gives_what_pooling_after_it_gives():
    """In eval mode, while batch norm's weights are positive (they begin at 1): the largest stays the largest."""
    block = models.ConvBlock(3, 6, pool=True).eval()
    convolution, pool, norm, relu = block
    x = torch.randn(2, 3, 8, 8)
    torch.testing.assert_close(block(x), pool(relu(norm(convolution(x)))))


@pytest.mark.parametrize("side, size, channels, batch", [(7, 28, 1, 1), (4, 28, 1, 5), (4, 32, 3, 2)])
def test_patches_takes_images_of_any_kind(side, size, channels, batch):
    model = models.Patches(side=side, size=size, channels=channels)
    assert model(torch.randn(batch, channels, size, size)).shape == (batch, 10)


def test_patches_reads_a_picture_in_reading_order():
    """What reaches the first layer is lab 01's `patches`, cut out with two loops and flattened."""
    model = models.Patches(side=4, size=12, channels=3)
    images = torch.randn(2, 3, 12, 12)
    seen = []
    model.embed.register_forward_pre_hook(lambda module, inputs: seen.append(inputs[0]))
    model(images)
    by_hand = [images[:, :, row : row + 4, column : column + 4] for row in (0, 4, 8) for column in (0, 4, 8)]
    assert torch.equal(seen[0], torch.stack([patch.flatten(1) for patch in by_hand], 1))


def test_attention_is_what_the_formula_says():
    attention, x = models.Attention(width=12, heads=3), torch.randn(2, 5, 12)
    collected = []
    for head in range(3):
        part = slice(4 * head, 4 * head + 4)
        query, key, value = (layer(x)[..., part] for layer in (attention.query, attention.key, attention.value))
        collected.append(torch.softmax(query @ key.transpose(1, 2) / 4**0.5, dim=-1) @ value)
    torch.testing.assert_close(attention(x), attention.out(torch.cat(collected, -1)))


def test_patches_is_made_of_equal_blocks_and_small():
    model = models.Patches()
    assert len({parameters(block) for block in model.blocks}) == 1 and len(model.blocks) == 4
    assert parameters(model) < 100_000
