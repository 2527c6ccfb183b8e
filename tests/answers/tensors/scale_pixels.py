import numpy as np
import torch
from torchvision.transforms.v2.functional import to_dtype

from torchcourse_labs.tensors.scale_pixels import solution


class Scale(torch.nn.Module):
    def forward(self, pixels):
        return pixels.clone().float().div_(255)


def in_place_division(pixels):
    pixels /= 255
    return pixels


RIGHT = [
    Scale(),
    lambda pixels: torch.from_numpy(pixels.numpy().astype(np.float32) / 255),
    lambda pixels: pixels.float().mul(1 / 255).contiguous(memory_format=torch.channels_last).requires_grad_(),
    lambda pixels: (torch.arange(256) / 255)[pixels.long()],
    lambda pixels: to_dtype(pixels, torch.float32, scale=True),
]

WRONG = {
    "rounded_down": [lambda pixels: (pixels / 255).byte(), lambda pixels: (pixels / 255).long()],
    "not_divided": [lambda pixels: pixels],
    None: [
        in_place_division,
        lambda pixels: print(end=""),
        lambda pixels: 1 - pixels / 255,
        lambda pixels: pixels.double() / 255,
        lambda pixels: pixels.half() / 255,
        lambda pixels: (pixels / 255).squeeze(),
        lambda pixels: solution(pixels).tolist(),
        lambda pixels: (pixels / 255).movedim(1, -1),
        lambda pixels: (pixels * 2.0).to(torch.uint8),
    ],
}
