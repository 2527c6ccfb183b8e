import numpy as np
import torch
import torch.nn.functional as F
from support.answers import mutants

from torchcourse_labs.cifar_cnn.augment_batch import solution


def by_indexing(images, pixels):
    count, _, height, width = images.shape
    padded = F.pad(images, (pixels,) * 4)
    top, left = torch.randint(0, 2 * pixels + 1, (2, count))
    rows = top[:, None] + torch.arange(height)
    columns = left[:, None] + torch.arange(width)
    moved = padded[torch.arange(count)[:, None, None], :, rows[:, :, None], columns[:, None, :]].permute(0, 3, 1, 2)
    return torch.where(torch.rand(count)[:, None, None, None] < 0.5, moved.flip(-1), moved)


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


RIGHT = [by_indexing, by_offsets]

DRAWN, COIN = (
    "torch.randint(0, 2 * pixels + 1, (2, count), device=images.device)",
    "torch.rand(count, device=images.device)",
)
PAD, CUT = "F.pad(images, (pixels,) * 4)", "torch.arange(count, device=images.device), :"

WRONG = {
    "rolled": mutants(solution, "return windows", "return images.roll((1, pixels), (-2, -1)); windows"),
    "another_image": mutants(solution, CUT, "torch.randint(count, (count,)), :"),
    "not_black": mutants(
        solution, PAD, "F.pad(images, (pixels,) * 4, mode='reflect')", "F.pad(images, (pixels,) * 4, value=9)"
    ),
    "mirror": mutants(solution, COIN, "torch.rand(1).expand(count)", "torch.randn(count)")
    + mutants(solution, f"{COIN} < 0.5", "torch.randint(0, 1, (count,)).bool()")
    + [lambda images, pixels: images.clone()],
    "offsets": [
        *mutants(solution, DRAWN, "torch.randint(0, 2 * pixels, (2, count))", "torch.randint(3, (2, count)) * pixels"),
        *mutants(solution, DRAWN, "torch.tensor([[0], [pixels]]).expand(2, count)"),
        *mutants(solution, "return windows", "return images; windows"),
        lambda images, pixels: solution(images, pixels + 1),
        lambda images, pixels: solution(images, 2),
    ],
    "the_same_again": [
        *mutants(solution, "    coin", "    torch.manual_seed(0); coin"),
        *mutants(solution, f"{COIN} < 0.5", "torch.arange(count) % 2 == 0"),
    ],
    "dependent": mutants(solution, DRAWN, "torch.randint(0, 2 * pixels + 1, (count,)).expand(2, count)"),
    "loop": [lambda images, pixels: torch.cat([solution(image[None], pixels) for image in images])],
    None: [
        *mutants(solution, "images.flip(-1)", "images.flip(-2)", "images.flip(-1, -2)"),
        *mutants(
            solution, "return windows", "windows = windows.float(); return windows", "return torch.arange(3), windows"
        ),
        lambda images, pixels: torch.cat([solution(channel[:, None], pixels) for channel in images.unbind(1)], 1),
        lambda images, pixels: F.pad(images, (pixels,) * 4),
        *mutants(solution, "    coin", "    images //= 2; coin"),
    ],
}
