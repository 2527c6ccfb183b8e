import torch
from support.answers import mutants

from torchcourse import models
from torchcourse_labs.language_model.parameter_count import solution


def on_meta(vocabulary, width, depth):
    with torch.device("meta"):
        model = models.GPT(vocabulary, width, depth)
    count = {"embedding": 0, "attention": 0, "mlp": 0, "norms": 0}
    for name, p in model.named_parameters():
        kinds = {"embed": "embedding", "attention": "attention", "norm": "norms"}
        count[next((kind for word, kind in kinds.items() if word in name), "mlp")] += p.numel()
    total = sum(p.numel() for p in model.parameters())
    flops = 6 * sum(m.weight.numel() for m in model.modules() if isinstance(m, torch.nn.Linear))
    return {**count, "total": total, "flops": flops}


def block_by_block(vocabulary, width, depth):
    count = dict.fromkeys(("flops", "total", "norms", "mlp", "attention"), 0)
    for _ in range(depth):
        count["attention"] += width * 3 * width + width * width
        count["mlp"] += width * 4 * width + 4 * width * width
        count["norms"] += width + width
    count |= {"norms": count["norms"] + width, "embedding": width * vocabulary}
    matrices = count["attention"] + count["mlp"] + count["embedding"]
    return count | {"total": matrices + count["norms"], "flops": 2 * matrices + 4 * matrices}


EMBEDDING, ATTENTION, MLP = '"embedding": vocabulary * width', '"attention": depth * 4', '"mlp": depth * 8'
NORMS, FLOPS = "(2 * depth + 1) * width", '6 * (total - parts["norms"])'

RIGHT = [on_meta, block_by_block]

WRONG = {
    "head_twice": mutants(solution, EMBEDDING, EMBEDDING.replace(": ", ": 2 * ")),
    "biases": [
        *mutants(solution, "depth * 4 * width**2", "depth * (4 * width**2 + 4 * width)"),
        *mutants(solution, "depth * 8 * width**2", "depth * (8 * width**2 + 5 * width)"),
        *mutants(solution, NORMS, f"2 * {NORMS}"),
    ],
    "one_block": [*mutants(solution, MLP, '"mlp": 8'), *mutants(solution, ATTENTION, '"attention": 4')],
    None: [
        *mutants(solution, ATTENTION, ATTENTION.replace("4", "3")),
        *mutants(solution, MLP, MLP.replace("8", "4")),
        *mutants(solution, NORMS, "2 * depth * width", "(depth + 1) * width"),
        *mutants(solution, FLOPS, "6 * total"),
        *mutants(solution, FLOPS, "2 * (total - parts['norms'])", "6.0" + FLOPS[1:]),
        *mutants(solution, "sum(parts.values())", "sum(parts.values()) + parts['embedding']"),
        *mutants(solution, '"norms": (', '"norm": ('),
        lambda *sizes: list(solution(*sizes).values()),
    ],
}
