"""Small parts that the course's networks share."""

import torch
from torch import Tensor, nn

from torchcourse.data import MEAN_STD
from torchcourse.errors import CourseError


class Normalize(nn.Module):
    """Images as they are stored -> what a network likes to see: mean 0 and standard deviation 1 in every channel.

    name: the data set whose means and standard deviations count ("mnist", "fashion_mnist", "cifar10").

    uint8 (or float, 0 to 255) [B, C, H, W] on any device -> float32 of the same shape, there. Images travel as uint8,
    a quarter of the bytes, and become floats where they are needed: `prepare=Normalize("mnist").to(device)` in `fit`,
    or as the first layer of a model. The result lies in memory pixel by pixel (channels_last), which convolutions on
    CPUs and on recent GPUs prefer.
    """

    def __init__(self, name: str):
        super().__init__()
        if name not in MEAN_STD:
            raise CourseError(f"There is no data set {name!r} to normalize for. Choose one of: {', '.join(MEAN_STD)}.")
        mean, std = (torch.tensor(values).view(1, -1, 1, 1) for values in MEAN_STD[name])
        # (x / 255 - mean) / std is one multiplication and one addition with numbers that are known beforehand.
        # Buffers move with the module; persistent=False keeps them out of the state_dict, where they would be ballast.
        self.register_buffer("scale", 1 / (255 * std), persistent=False)
        self.register_buffer("shift", -mean / std, persistent=False)

    def forward(self, images: Tensor) -> Tensor:
        pixels = images.to(torch.float32, memory_format=torch.channels_last)
        return torch.addcmul(self.shift, pixels, self.scale)  # shift + pixels * scale, in one pass


class ConvBlock(nn.Sequential):
    """Convolution, batch norm, ReLU: [B, inputs, H, W] -> [B, outputs, H / stride, W / stride].

    padding: None keeps height and width (with stride 1); 0 loses kernel - 1 of each.
    pool: halve height and width with max pooling, right after the convolution: batch norm and ReLU then have a quarter
        of the numbers to work on.
    The convolution has no bias: batch norm subtracts every channel's mean and would take it out again.
    """

    def __init__(
        self,
        inputs: int,
        outputs: int,
        kernel: int = 3,
        stride: int = 1,
        padding: int | None = None,
        pool: bool = False,
    ):
        padding = kernel // 2 if padding is None else padding
        convolution = nn.Conv2d(inputs, outputs, kernel, stride, padding, bias=False)
        pooling = [nn.MaxPool2d(2)] if pool else []
        super().__init__(convolution, *pooling, nn.BatchNorm2d(outputs), nn.ReLU(inplace=True))
