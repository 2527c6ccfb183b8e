"""The networks of the course: each takes normalized images [B, C, H, W] and gives logits [B, classes]."""

from torchcourse.models.cifar import CifarNet, CifarTutorial
from torchcourse.models.layers import ConvBlock, Normalize
from torchcourse.models.mnist import MnistExample, MnistNet
from torchcourse.models.vision_transformer import Attention, PatchBlock, Patches

__all__ = [
    "Attention",
    "CifarNet",
    "CifarTutorial",
    "ConvBlock",
    "MnistExample",
    "MnistNet",
    "Normalize",
    "PatchBlock",
    "Patches",
]
