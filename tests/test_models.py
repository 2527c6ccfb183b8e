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
    layer = models.Normalize(name)
    for images in (pixels, pixels.float(), pixels.to(memory_format=torch.channels_last)):
        before = images.clone()
        normalized = layer(images)
        torch.testing.assert_close(normalized, expected)
        assert normalized.is_contiguous(memory_format=torch.channels_last)
        assert torch.equal(images, before)
    assert not layer.state_dict(), "a checkpoint of a model fits with and without it"
    assert layer.to("meta")(pixels.to("meta")).device.type == "meta"
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


def test_mnist_networks_give_logits_and_every_part_learns():
    for model in (models.MnistExample(), models.MnistNet()):
        logits = model(torch.randn(4, 1, 28, 28))
        assert logits.shape == (4, 10)
        assert logits.min() < 0 < logits.max()  # neither probabilities nor their logarithms
        F.cross_entropy(logits, torch.arange(4)).backward()
        assert all(parameter.grad.abs().sum() > 0 for parameter in model.parameters())
        assert model.eval()(torch.randn(1, 1, 28, 28)).shape == (1, 10), "a batch of one stays a batch"
    assert parameters(model) < 100_000
    convolutions = [module for module in model.modules() if isinstance(module, nn.Conv2d)]
    assert all(layer.weight.is_contiguous(memory_format=torch.channels_last) for layer in convolutions)


def test_conv_block():
    x = torch.randn(2, 3, 8, 8)
    for options, size in (({"stride": 2}, 4), ({"padding": 0}, 6), ({"pool": True}, 4), ({"kernel": 5}, 8)):
        block = models.ConvBlock(3, 6, **options)
        assert block(x).shape == (2, 6, size, size) and block(x).min() >= 0
        assert all(module.bias is None for module in block if isinstance(module, nn.Conv2d))
    # Pooling before batch norm gives what pooling after it gives: in eval mode, the largest stays the largest.
    convolution, pool, norm, relu = block = models.ConvBlock(3, 6, pool=True).eval()
    torch.testing.assert_close(block(x), pool(relu(norm(convolution(x)))))


def test_patches_reads_a_picture_in_reading_order_in_equal_blocks():
    """What reaches the first layer is lab 01's `patches`, cut out with two loops and flattened."""
    model = models.Patches(side=4, size=12, channels=3)
    images = torch.randn(2, 3, 12, 12)
    seen = []
    model.embed.register_forward_pre_hook(lambda module, inputs: seen.append(inputs[0]))
    assert model(images).shape == (2, 10)
    by_hand = [images[:, :, row : row + 4, column : column + 4] for row in (0, 4, 8) for column in (0, 4, 8)]
    assert torch.equal(seen[0], torch.stack([patch.flatten(1) for patch in by_hand], 1))
    model = models.Patches()
    assert model(torch.randn(1, 1, 28, 28)).shape == (1, 10)
    assert len({parameters(block) for block in model.blocks}) == 1 and len(model.blocks) == 4
    assert parameters(model) < 100_000


def test_attention_is_what_the_formula_says():
    attention, x = models.Attention(width=12, heads=3), torch.randn(2, 5, 12)
    collected = []
    for head in range(3):
        part = slice(4 * head, 4 * head + 4)
        query, key, value = (layer(x)[..., part] for layer in (attention.query, attention.key, attention.value))
        collected.append(torch.softmax(query @ key.transpose(1, 2) / 4**0.5, dim=-1) @ value)
    torch.testing.assert_close(attention(x), attention.out(torch.cat(collected, -1)))
