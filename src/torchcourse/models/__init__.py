"""The networks of the course: normalized images [B, C, H, W] in, logits [B, classes] out. One, `GPT`, reads tokens."""

from torchcourse.models.cifar import CifarNet, CifarTutorial
from torchcourse.models.gpt import GPT
from torchcourse.models.layers import ConvBlock, Normalize
from torchcourse.models.mnist import MnistExample, MnistNet
from torchcourse.models.vision_transformer import Attention, PatchBlock, Patches

__all__ = [
    "GPT",
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
