"""Networks for CIFAR-10: images [B, 3, 32, 32] -> logits [B, 10]."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class CifarTutorial(nn.Module):
    """The network of PyTorch's beginner tutorial: two 5×5 convolutions, three linear layers, 62,000 parameters.

    batch_norm: the same network with batch norm after each convolution.
    """

    def __init__(self, batch_norm: bool = False):
        super().__init__()
        norm = nn.BatchNorm2d if batch_norm else nn.Identity
        self.conv1, self.norm1 = nn.Conv2d(3, 6, 5), norm(6)
        self.conv2, self.norm2 = nn.Conv2d(6, 16, 5), norm(16)
        self.fc1 = nn.Linear(16 * 5 * 5, 120)
        self.fc2 = nn.Linear(120, 84)
        self.fc3 = nn.Linear(84, 10)
        self.to(memory_format=torch.channels_last)

    def forward(self, images: Tensor) -> Tensor:
        x = F.max_pool2d(F.relu(self.norm1(self.conv1(images))), 2)  # [B, 6, 14, 14]
        x = F.max_pool2d(F.relu(self.norm2(self.conv2(x))), 2)  # [B, 16, 5, 5]
        x = x.flatten(1)  # [B, 400]: all but the batch dimension
        x = F.relu(self.fc1(x))
        x = F.relu(self.fc2(x))
        return self.fc3(x)


class CifarNet(nn.Module):
    """A small convolutional network that learns CIFAR-10 quickly: a stem, three stages, one linear layer.

    widths: channels of the three stages; each stage halves height and width.
    stride: of the 3×3 stem. 2 makes the image small at once (a quarter of the work); 1 keeps every pixel.
    residual: each stage adds what comes into its second convolution to what comes out of it.
    classes: how many to tell apart.
    """

    def __init__(
        self,
        widths: tuple[int, int, int] = (32, 64, 128),
        stride: int = 2,
        residual: bool = True,
        classes: int = 10,
    ):
        super().__init__()
        first, second, third = widths
        self.stem = nn.Conv2d(3, 32, 3, stride, padding=1, bias=False)  # [B, 32, 16, 16] with stride 2
        self.stages = nn.Sequential(
            Stage(32, first, residual),  # [B, 32, 8, 8]
            Stage(first, second, residual),  # [B, 64, 4, 4]
            Stage(second, third, residual),  # [B, 128, 2, 2]
        )
        self.head = nn.Linear(third, classes)
        self.to(memory_format=torch.channels_last)

    def features(self, images: Tensor) -> Tensor:
        """What the last layer decides by, [B, widths[2]]: the largest value of each channel, wherever it was."""
        return self.stages(F.gelu(self.stem(images))).amax((2, 3))

    def forward(self, images: Tensor) -> Tensor:
        return self.head(self.features(images))

    def whiten(self, patches: Tensor) -> "CifarNet":
        """Set the stem's weights so that what it hands on is uncorrelated, and leave them so. Returns the network.

        patches: normalized images [N, 3, H, W], a few thousand are enough.

        Neighboring pixels are nearly equal, so most of what a patch of 3×3 pixels holds is its brightness. The
        eigenvectors of the patches' covariance are the directions that vary independently; divided by the square
        root of their eigenvalues, all vary equally much, and the first stage learns from all of them at once. Of the
        27 directions the 16 that vary most are kept: the others hold little but noise. The other 16 channels are the
        same with the opposite sign: what GELU cuts off in one gets through in the other.
        """
        weights = whitening(patches, self.stem.kernel_size[0])[: self.stem.out_channels // 2]
        with torch.no_grad():
            self.stem.weight.copy_(torch.cat([weights, -weights]))
        self.stem.weight.requires_grad_(False)
        return self


class Stage(nn.Module):
    """Two 3×3 convolutions with batch norm and GELU, a max pooling after the first: half the height and width."""

    def __init__(self, inputs: int, outputs: int, residual: bool):
        super().__init__()
        self.conv1, self.norm1 = nn.Conv2d(inputs, outputs, 3, padding=1, bias=False), nn.BatchNorm2d(outputs)
        self.conv2, self.norm2 = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False), nn.BatchNorm2d(outputs)
        self.residual = residual

    def forward(self, x: Tensor) -> Tensor:
        x = F.gelu(self.norm1(F.max_pool2d(self.conv1(x), 2)))
        change = self.norm2(self.conv2(x))
        return F.gelu(x + change if self.residual else change)


def whitening(images: Tensor, size: int, eps: float = 5e-4) -> Tensor:
    """Weights [C * size², C, size, size] of a convolution whose outputs are uncorrelated and of variance about 1.

    The first output belongs to the direction in which the patches vary most, the last to where they hardly vary.
    images: [N, C, H, W], normalized as the network will see them; size: of the patches, in pixels.
    eps: added to the variances, so that directions in which almost nothing happens are not blown up to noise.
    """
    channels = images.shape[1]
    patches = images.unfold(2, size, size).unfold(3, size, size)  # [N, C, rows, columns, size, size]
    patches = patches.permute(1, 4, 5, 0, 2, 3).reshape(channels * size**2, -1)  # one column for each patch
    # So small a matrix has nothing to keep a GPU busy with.
    variances, directions = torch.linalg.eigh(patches.cov().cpu())  # directions: one per column
    weights = (directions / (variances + eps).sqrt()).T.reshape(-1, channels, size, size)
    return weights.flip(0)  # eigh begins with the smallest variance
