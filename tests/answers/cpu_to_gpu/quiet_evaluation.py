import torch
import torch.nn.functional as F
from support.answers import mutant, mutants

from torchcourse_labs.cpu_to_gpu.quiet_evaluation import solution

MAXIMUM, RIGHT_ONES = "torch.maximum(worst, losses.max())", "labels).sum()"


def all_at_once(model, batches):
    images, labels = (torch.cat(parts) for parts in zip(*batches, strict=True))
    with torch.inference_mode():
        logits = model(images)
        losses = F.cross_entropy(logits, labels, reduction="none")
        right, sure = (logits.argmax(1) == labels).float().mean(), logits.softmax(1).amax(1).gt(0.9).sum()
        right, worst, sure = torch.stack([right, losses.max(), sure]).tolist()
    return [right, worst, int(sure)]


RIGHT = [
    all_at_once,
    mutant(
        solution,
        (MAXIMUM, "torch.where(losses.max() > worst, losses.max(), worst)"),
        ("right.item() / seen, worst.item(), sure.item()", "tuple(n.item() for n in (right / seen, worst, sure))"),
    ),
]

WRONG = {
    "waits": [
        mutant(solution, (RIGHT_ONES, f"{RIGHT_ONES}.item()"), ("right.item()", "right")),
        *mutants(solution, MAXIMUM, "losses.max() if losses.max() > worst else worst", "max(worst, losses.max())"),
    ],
    "order": mutants(solution, "worst.item(), sure.item()", "sure.item(), worst.item()"),
    "graphs": mutants(solution, "torch.no_grad()", "torch.enable_grad()"),
    None: [
        mutant(solution, (RIGHT_ONES, "labels).float().mean()"), ("() / seen", "() / len(batches)")),
        *mutants(solution, "right.item() / seen, worst.item()", "right / seen, worst"),
        *mutants(solution, MAXIMUM, "losses.max()", "torch.maximum(worst, losses.mean())"),
        lambda model, batches: torch.tensor(solution(model, batches)),
    ],
}
