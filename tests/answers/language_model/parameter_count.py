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


EMBEDDING, ATTENTION, MLP = '"embedding": vocabulary * width', '"attention": depth * 4', '"mlp": depth * 8'
NORMS, FLOPS = "(2 * depth + 1) * width", '6 * (total - parts["norms"])'

RIGHT = [on_meta]

WRONG = {
    "head_twice": mutants(solution, EMBEDDING, EMBEDDING.replace(": ", ": 2 * ")),
    "biases": [*mutants(solution, NORMS, f"2 * {NORMS}"), *mutants(solution, "4 * width**2", "4 * (width**2 + width)")],
    "one_block": [*mutants(solution, MLP, '"mlp": 8'), *mutants(solution, ATTENTION, '"attention": 4')],
    "built": mutants(on_meta, 'torch.device("meta")', 'torch.device("cpu")'),
    "floats": mutants(solution, FLOPS, "6.0" + FLOPS[1:]),
    None: [
        *mutants(solution, ATTENTION, ATTENTION.replace("4", "3")),
        *mutants(solution, MLP, MLP.replace("8", "4")),
        *mutants(solution, NORMS, "2 * depth * width", "(depth + 1) * width"),
        *mutants(solution, FLOPS, "6 * total", "2 * (total - parts['norms'])"),
        *mutants(solution, "sum(parts.values())", "sum(parts.values()) + parts['embedding']"),
        *mutants(solution, '"norms": (', '"norm": ('),
        lambda *sizes: list(solution(*sizes).values()),
    ],
}
