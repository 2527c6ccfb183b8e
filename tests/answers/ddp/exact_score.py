import torch
import torch.distributed as dist
from support.answers import mutant, mutants

from torchcourse_labs.ddp.exact_score import solution

SEEN, REDUCED, RETURNED = "counts[1] += len(labels)", "dist.all_reduce(counts)", "(counts[0] / counts[1]).item()"
SHARE = "score = (counts[0] / counts[1].clamp(min=1)).double(); dist.all_reduce(score)"


@torch.inference_mode()
def gathered(model, batches):
    model.eval()
    right = [each for x, labels in batches for each in (model(x).argmax(1) == labels).tolist()]
    everyone = [None] * dist.get_world_size()
    dist.all_gather_object(everyone, right)
    return sum(map(sum, everyone)) / sum(map(len, everyone))


def by_two_messages(model, batches):
    right, samples = torch.tensor(0.0), torch.tensor(0.0)
    for x, labels in batches:
        right += model.eval()(x).softmax(1).argmax(1).eq(labels).float().mean().detach() * len(x)
        samples += len(x)
    dist.reduce(right, 0), dist.broadcast(right, 0), dist.all_reduce(samples)
    return float(right / samples)


RIGHT = [gathered, by_two_messages, mutant(solution, ("torch.int64", "torch.float64"))]

WRONG = {
    "deadlock": mutants(solution, SEEN, f"{SEEN}; dist.barrier()"),
    "nothing_exchanged": mutants(solution, REDUCED, "counts[1].clamp_(min=1)"),
    "means_of_means": [mutant(solution, (REDUCED, SHARE), (RETURNED, "score.item() / 2"))],
    "train_mode": mutants(solution, "model.eval()", "pass"),
    "no_batches": [
        *mutants(solution, REDUCED, "counts = counts / counts[1] * counts[1]; dist.all_reduce(counts)"),
        *mutants(solution, REDUCED, f"sum(len(x) for x, _ in batches) / len(batches); {REDUCED}"),
    ],
    None: [
        *mutants(solution, REDUCED, "dist.reduce(counts, 0); counts[1].clamp_(min=1)"),
        *mutants(solution, "return", "if dist.get_rank() == 0: return"),
        *mutants(solution, RETURNED, "100 * (counts[0] / counts[1]).item()", "counts[0] / counts[1]"),
        *mutants(solution, SEEN, f"{SEEN}; break"),
    ],
}
