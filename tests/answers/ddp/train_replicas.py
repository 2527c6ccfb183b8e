import torch
import torch.distributed as dist
import torch.nn.functional as F
from support.answers import mutant, mutants

from torchcourse_labs.ddp import average_gradients
from torchcourse_labs.ddp.train_replicas import solution

RANKS, STEP, ZERO = " // dist.get_world_size()", "optimizer.step()", "optimizer.zero_grad()"
MAIN, PRINT = "        if dist.get_rank() == 0:\n", "            print("
EPOCH, SAMPLER, LOSS = "sampler.set_epoch(epoch)", "(train_set, seed=seed)", "F.cross_entropy(replica(x), labels)"


def by_hand(model, optimizer, train_set, epochs, batch_size, seed):
    rank, world = dist.get_rank(), dist.get_world_size()
    for tensor in model.state_dict().values():
        dist.broadcast(tensor, 0)
    for epoch in epochs:
        order = torch.randperm(len(train_set), generator=torch.Generator().manual_seed(seed + epoch))
        for rows in order[rank::world].split(batch_size // world):
            x, labels = (torch.stack(each) for each in zip(*(train_set[i] for i in rows), strict=True))
            optimizer.zero_grad()
            F.cross_entropy(model(x), labels).backward()
            average_gradients.solution(model)
            optimizer.step()
        if rank == 0:
            print("epoch", epoch, "is over")
    return model


RIGHT = [by_hand, mutant(solution, ("return replica", "print('done') if dist.get_rank() == 0 else None; return model"))]

WRONG = {
    "deadlock": [mutant(solution, ("in loader:", "in list(loader)[dist.get_rank() :]:"))],
    "unchanged": mutants(solution, STEP, "pass"),
    "all_samples": mutants(solution, "sampler=sampler", "shuffle=True"),
    "ranks_apart": [*mutants(solution, "DDP(model)", "model"), *mutants(solution, "replica(x)", "model(x)")],
    "other_epochs": [
        *mutants(solution, EPOCH, "pass", "sampler.set_epoch(epoch - epochs[0])"),
        mutant(solution, (EPOCH, "pass"), (MAIN, f"        {EPOCH}\n{MAIN}")),
    ],
    "global_batch": mutants(solution, RANKS, ""),
    "line_per_epoch": [
        mutant(solution, (MAIN + PRINT, "        print(")),
        *mutants(solution, STEP, f"{STEP}\n            if dist.get_rank() == 0: print(loss.item())"),
    ],
    None: [
        *mutants(solution, "return replica", "return", "dist.destroy_process_group(); return replica"),
        *mutants(solution, ZERO, "pass"),
        *mutants(solution, "DDP(model)", "DDP(model).eval()"),
        *mutants(solution, "in epochs:", "in [*epochs, *epochs]:"),
        *mutants(solution, SAMPLER, "(train_set)"),
        *mutants(solution, LOSS, f"{LOSS} / dist.get_world_size()"),
    ],
}
