import numpy as np
import torch
from torchvision.transforms.v2.functional import to_dtype


def in_place_division(pixels):
    pixels /= 255
    return pixels


RIGHT = [
    lambda pixels: torch.from_numpy(pixels.numpy().astype(np.float32) / 255),
    lambda pixels: pixels.float().mul(1 / 255).requires_grad_(),
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
    ],
}
