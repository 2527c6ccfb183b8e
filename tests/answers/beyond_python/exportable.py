import torch
import torch.nn.functional as F
from support.answers import mutants
from torch import nn

from torchcourse_labs.beyond_python.exportable import solution

Exportable = solution


class ByCond(Exportable):
    def forward(self, images):
        white = images.mean() > 0.5
        return super().forward(torch.cond(white, lambda x: 1 - x, lambda x: x.clone(), (images,)))


class OtherOrder(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.out, self.hidden = nn.Linear(width, 10), nn.Linear(144, width)

    def forward(self, images):
        white = (images.mean() > 0.5).float()
        x = (white + (1 - 2 * white) * images).reshape(images.shape[0], -1)
        x = x / x.max(dim=1, keepdim=True).values.clamp(min=1e-12)
        return self.out(self.hidden(x).clamp(min=0))


class Original(Exportable):
    def forward(self, images):
        if images.mean() > 0.5:
            images = 1 - images
        rows = [image / image.max() if image.max() > 0 else image for image in images]
        return self.out(F.relu(self.hidden(torch.stack(rows).reshape(len(images), -1))))


INVERT = "torch.where(images.mean() > 0.5, 1 - images, images)"
DIVISOR = "torch.where(largest > 0, largest, 1.0)"
FLAT = "images.flatten(1)"

RIGHT = [ByCond, OtherOrder]

WRONG = {
    "wrong_pages": [
        *mutants(solution, "images.mean()", "images.mean(dim=(1, 2, 3), keepdim=True)"),
        *mutants(solution, INVERT, "images", INVERT.replace(">", "<=")),
    ],
    "empty_page": [
        *mutants(solution, DIVISOR, "largest"),
        *mutants(solution, f"images / {DIVISOR}", "torch.where(largest > 0, images / largest, 1.0)"),
    ],
    "faint_pages": mutants(solution, DIVISOR, "(largest + 1e-6)", "(largest + 1e-3)", "largest.clamp(min=1e-3)"),
    "decided_in_python": [Original, *mutants(solution, INVERT, "1 - images if images.mean().item() > 0.5 else images")],
    "constant_batch": mutants(solution, FLAT, "images.reshape(len(images), -1)"),
    None: [
        lambda width: nn.Sequential(nn.Flatten(), nn.Linear(144, 10)),
        *mutants(solution, "images.amax(dim=(1, 2, 3), keepdim=True)", "images.max()"),
        *mutants(solution, "> 0.5", ">= 0.5"),
        *mutants(solution, DIVISOR, "1.0", "(largest + 0.01)"),
        *mutants(solution, FLAT, "torch.from_numpy(images.numpy()).flatten(1)"),
        *mutants(solution, "F.relu(self.hidden(images.flatten(1)))", "self.hidden(images.flatten(1))"),
    ],
}
