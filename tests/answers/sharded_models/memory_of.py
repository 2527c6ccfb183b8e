import torch
from support.answers import mutant, mutants

from torchcourse_labs.sharded_models.memory_of import solution

ROWS, SIZE = "math.ceil(shape[0] / ranks) * math.prod(shape[1:])", '2 if precision == "bf16" else 4'
STAGES = ("stage >= 3", "stage >= 2", "stage >= 1")


def by_chunks(shapes, ranks, stage, optimizer, precision, activations):
    def part(first, times):
        dtype = torch.bfloat16 if precision == "bf16" else torch.float32
        tensors = (torch.empty(shape, device="meta", dtype=dtype) for shape in shapes)
        return times * sum(tensor.chunk(ranks if stage >= first else 1)[0].nbytes for tensor in tensors)

    parts = {"weights": part(3, 1), "gradients": part(2, 1)}
    return {"activations": activations, "optimizer": part(1, {"adamw": 2, "momentum": 1}.get(optimizer, 0)), **parts}


RIGHT = [by_chunks, mutant(solution, (ROWS, "-(-shape[0] // ranks) * math.prod(shape) // shape[0]"))]

WRONG = {
    "stage": [
        *mutants(solution, "stage >= 3", "stage >= 2"),
        *mutants(solution, "stage >= 2", "stage == 2"),
        mutant(solution, *((each, "False") for each in STAGES)),
    ],
    "size_of_numbers": [
        *mutants(solution, SIZE, "4", SIZE.replace("==", "!=").replace("bf16", "fp32")),
        *mutants(solution, '"adamw": 2', '"adamw": 3'),
        *mutants(solution, '"sgd": 0', '"sgd": 1'),
    ],
    None: [
        lambda *given: list(solution(*given).values()),
        *mutants(solution, '"activations": activations', '"activations": activations // ranks'),
        *mutants(solution, "math.ceil(shape[0] / ranks)", "(shape[0] // ranks)"),
        *mutants(solution, ROWS, "math.ceil(math.prod(shape) / ranks)", "math.prod(shape) / ranks"),
    ],
}
