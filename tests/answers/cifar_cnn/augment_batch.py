import numpy as np
import torch
import torch.nn.functional as F
from support.answers import mutants

from torchcourse_labs.cifar_cnn.augment_batch import solution


def by_offsets(images, pixels):
    result, (height, width) = torch.empty_like(images), images.shape[2:]
    padded = F.pad(images, (pixels,) * 4)
    places = torch.randint(2 * pixels + 1, (len(images), 2))
    for top in range(2 * pixels + 1):
        for left in range(2 * pixels + 1):
            chosen = (places == torch.tensor([top, left])).all(1)
            result[chosen] = padded[chosen][:, :, top : top + height, left : left + width]
    coin = torch.from_numpy(np.random.default_rng().random(len(images)) < 0.5)
    result[coin] = result[coin].flip(-1)
    return result


RIGHT = [by_offsets]

DRAWN = "torch.randint(0, 2 * pixels + 1, (2, count), device=images.device)"
COIN, PAD = "torch.rand(count, device=images.device)", "F.pad(images, (pixels,) * 4)"

WRONG = {
    "rolled": mutants(solution, "return windows", "return images.roll((1, pixels), (-2, -1)); windows"),
    "mirror": [
        *mutants(solution, COIN, "torch.rand(1).expand(count)", "torch.randn(count)"),
        lambda images, pixels: images.clone(),
    ],
    "offsets": [
        *mutants(solution, DRAWN, "torch.randint(0, 2 * pixels, (2, count))"),
        lambda images, pixels: solution(images, 2),
        lambda images, pixels: solution(images, 4),
        *mutants(solution, ":, down, right]", ":, pixels, right]"),
    ],
    "dependent": mutants(solution, DRAWN, "torch.randint(0, 2 * pixels + 1, (count,)).expand(2, count)"),
    "loop": [lambda images, pixels: torch.cat([solution(image[None], pixels) for image in images])],
    None: [
        *mutants(solution, "    coin", "    torch.manual_seed(0); coin"),
        *mutants(solution, f"{COIN} < 0.5", "torch.arange(count) % 2 == 0"),
        *mutants(solution, "images.flip(-1)", "images.flip(-2)"),
        *mutants(solution, PAD, "F.pad(images, (pixels,) * 4, mode='reflect')"),
        lambda images, pixels: F.pad(images, (pixels,) * 4),
    ],
}
