import torch
import torch.nn.functional as F
from support.answers import mutant, mutants

from torchcourse_labs.performance.lean_epoch import solution


def all_at_once(model, training, validation, class_weights, optimizer, device):
    """Everything travels before the first batch; one evaluation for all; one wait."""
    both = [[torch.cat(part).to(device) for part in zip(*each, strict=True)] for each in (training, validation)]
    (x, u), (y, v) = zip(*both, strict=True)
    x, u = ((z.float() - z.float().mean((1, 2, 3), True)) / z.float().std((1, 2, 3), keepdim=True) for z in (x, u))
    losses, weights = [], torch.tensor(class_weights).to(device)
    for images, labels in zip(x.split(len(training[0][0])), y.split(len(training[0][0])), strict=True):
        model.train().zero_grad()
        losses.append(F.cross_entropy(model(images), labels, weights))
        losses[-1].backward()
        optimizer.step()
    with torch.inference_mode():
        share = (model.eval()(u).argmax(1) == v).float().mean()
    return torch.stack([torch.stack(losses).mean().detach(), share]).tolist()


SUM, SEND = "== labels.to(device)).sum()", "images.to(device).float()"
WEIGHTS, MEAN = "class_weights = torch.tensor(class_weights, device=device)", "std, mean ="
WAITS = ("loss.detach()", "loss.item()"), ("total.item()", "total")
BYTES, GRAPH = (SEND, "images.float().to(device)"), ("torch.no_grad()", "torch.enable_grad()")
AGAIN = (WEIGHTS, "pass"), ("=class_weights", "=torch.tensor(class_weights).to(device)")
ONE_BY_ONE = MEAN, f"images = torch.stack([image / 255 for image in images]); {MEAN}"

RIGHT = [all_at_once, mutant(solution, (SEND, "images.to(device) * 1.0"), (GRAPH[0], "torch.inference_mode()"))]

WRONG = {
    "waits": [
        mutant(solution, *WAITS, BYTES, *AGAIN, ONE_BY_ONE, GRAPH),
        mutant(solution, (SUM, f"{SUM}.item()"), ("right.item()", "right")),
    ],
    "bytes": [mutant(solution, BYTES, *AGAIN), *mutants(solution, SEND, "images.to(device, torch.float32)")],
    "again": [mutant(solution, *AGAIN, ONE_BY_ONE)],
    "one_by_one": [mutant(solution, ONE_BY_ONE, GRAPH)],
    "graph": [mutant(solution, GRAPH)],
    None: [
        *mutants(solution, "total.item() /", "total /", "total.item() +"),
        *mutants(solution, "(1, 2, 3),", "(0, 1, 2, 3),", "(1, 2, 3), correction=0,"),
        *mutants(solution, "model.eval()", "pass") + mutants(solution, "model.train()", "pass"),
        *mutants(solution, "loss.detach()", "loss.detach() * len(images) / len(training[0][0])"),
        mutant(solution, (SUM, "== labels.to(device)).float().mean()"), ("count += len(labels)", "count += 1")),
    ],
}
