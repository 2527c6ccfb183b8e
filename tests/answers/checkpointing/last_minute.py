import signal

import torch.distributed as dist
from support.answers import mutant, mutants

from torchcourse_labs.checkpointing.last_minute import AGAIN, solution

HANDLER = "lambda number, frame: asked.append(number)"
DEFAULT = "signal.signal(signal.SIGUSR1, signal.SIG_DFL)"
REDUCE = "dist.all_reduce(stop, op=dist.ReduceOp.MAX)"


def with_objects(step, save, first, last):
    flag = {"stop": False}

    def handle(number, frame):
        flag["stop"] = True

    old = [signal.signal(number, handle) for number in (signal.SIGUSR1, signal.SIGTERM)]
    number, everyone = first, [None] * dist.get_world_size()
    while number < last:
        step(number)
        number += 1
        dist.all_gather_object(everyone, flag["stop"])
        if any(everyone):
            break
    save(number)
    dist.all_gather_object(everyone, flag["stop"])  # also waits for all ranks
    signal.signal(signal.SIGUSR1, old[0])
    signal.signal(signal.SIGTERM, old[1])
    return AGAIN if any(everyone) else 0


RIGHT = [with_objects, *mutants(solution, "op=dist.ReduceOp.MAX", "dist.ReduceOp.SUM")]

WRONG = {
    "deadlock": [
        *mutants(solution, REDUCE, "pass", REDUCE.replace("all_reduce(stop", "reduce(stop, 0")),
        *mutants(solution, HANDLER, "lambda number, frame: exit(75)"),
    ],
    "unequal_tensors": mutants(solution, "torch.tensor(float(len(asked)))", "torch.zeros(1 + len(asked))"),
    "early": mutants(solution, "dist.barrier()\n            return", "return"),
    None: [
        *mutants(solution, '(signal.SIGTERM, getattr(signal, "SIGUSR1", signal.SIGTERM))', "(signal.SIGUSR1,)", "()"),
        mutant(solution, ("save(number", "signal.signal(signal.SIGTERM, signal.SIG_DFL)\n            save(number")),
        *mutants(solution, HANDLER, "lambda number, frame: [save(number), asked.append(number)]", "signal.SIG_IGN"),
        *mutants(solution, REDUCE, "dist.broadcast(stop, src=0)"),
        *mutants(solution, "ReduceOp.MAX", "ReduceOp.MIN"),
        *mutants(solution, "step(number)", f"number > first or {DEFAULT}; step(number)"),
        *mutants(solution, "save(number + 1)", "pass", "save(number)", "dist.get_rank() == 0 and save(number + 1)"),
        *mutants(solution, "save(last)", "pass", "save(number + 1)"),
        *mutants(solution, "range(first, last)", "range(first, last + 1)"),
        *mutants(solution, "return AGAIN", "pass", "return", "return '75'", "exit(AGAIN)"),
    ],
}
