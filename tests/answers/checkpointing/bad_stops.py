import torch
from support.answers import mutants

from torchcourse_labs.checkpointing.bad_stops import solution

SEED, EQUAL, PATH = "torch.manual_seed(stop)", "torch.equal(", 'folder / f"stopped-{stop}.pt"'


def in_two_loops(train, folder, last):
    for stop in range(1, last):
        train(folder / str(stop), stop)
    torch.seed()
    straight, *ends = (train(folder / str(stop), last) for stop in (0, *range(1, last)))
    return [stop for stop, end in enumerate(ends, 1) if any((end[name] != straight[name]).any() for name in end)]


RIGHT = [in_two_loops, *mutants(solution, SEED, "torch.rand(1)")]
WRONG = {
    "old_file": [
        *mutants(solution, PATH, 'folder / "straight.pt"', 'folder / "run.pt"'),
        *mutants(solution, "(path, last)", "(path, last - stop)"),
    ],
    "late": mutants(solution, "range(1, last)", "range(1, last + 1)"),
    "no_resume": mutants(solution, "train(path, stop)", "pass"),
    "random_state": mutants(solution, SEED, "pass"),
    "last_bits": mutants(solution, EQUAL, "torch.allclose("),
    None: [*mutants(solution, "range(1, last)", "range(2, last)"), *mutants(solution, "not all(", "not any(")],
}
