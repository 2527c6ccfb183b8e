from support.answers import mutant, mutants

from torchcourse_labs.ddp.repair_replicas import solution

WRAPPED, SAMPLER, EPOCH = "replica = DDP(model)", "DistributedSampler(train_set)", "sampler.set_epoch(epoch)"
CALL, STEP, REDUCED, SHARE = "replica(x)", "optimizer.step()", "dist.all_reduce(total)", "len(train_set)"
MAIN, SAVED = "    if dist.get_rank() == 0:\n        torch", "torch.save(model.state_dict(), path)"
ON_ONE, NO_MAIN, OWN = f"if dist.get_rank() == 0: {REDUCED}", "    torch", "len(sampler)"
FAULTS = (EPOCH, "pass"), (CALL, "model(x)"), (REDUCED, ON_ONE), (SHARE, OWN), (MAIN, NO_MAIN)
BROADCAST = "[dist.broadcast(tensor, 0) for tensor in model.state_dict().values()]"
AVERAGED = "[(dist.all_reduce(p.grad), p.grad.div_(dist.get_world_size())) for p in model.parameters()]"
GATHERED = "both = [None, None]; dist.all_gather_object(both, total); total = sum(both)"

RIGHT = [
    mutant(  # without DDP, in another order
        solution,
        (WRAPPED, BROADCAST),
        (SAMPLER, "DistributedSampler(train_set, seed=5)"),
        (CALL, "model(x)"),
        (STEP, f"{AVERAGED}; {STEP}"),
    ),
    mutant(  # the model has the name of its wrapper; all ranks wait for the file
        solution,
        (WRAPPED, "model = DDP(model)"),
        (CALL, "model(x)"),
        (REDUCED, GATHERED),
        ("model.state_dict()", "model.module.state_dict()"),
        ("return", "dist.barrier(); return"),
    ),
    mutant(  # one file in each epoch, in place of the former one
        solution,
        (SHARE, f"{OWN} / dist.get_world_size()"),
        ("print(", "torch.save(replica.module.state_dict(), path); print("),
        (SAVED, "pass"),
    ),
]

WRONG = {
    "deadlock": [mutant(solution, *FAULTS)],
    "unequal_tensors": mutants(solution, REDUCED, ON_ONE),
    "ranks_apart": [
        mutant(solution, *(fault for fault in FAULTS if REDUCED not in fault)),
        *mutants(solution, CALL, "model(x)"),
        *mutants(solution, WRAPPED, "replica = model"),
    ],
    "same_order": mutants(solution, EPOCH, "pass", "sampler.set_epoch(0)"),
    "loss": [
        *mutants(solution, SHARE, OWN, "len(loader)"),
        mutant(solution, (SHARE, OWN), (REDUCED, "pass")),
        *mutants(solution, REDUCED, "dist.reduce(total, 0)"),
    ],
    "every_rank_saves": mutants(solution, MAIN, NO_MAIN),
    "names": mutants(solution, SAVED, "torch.save(replica.state_dict(), path)"),
    None: [
        *mutants(solution, "return losses", "return", "return losses[-1]"),
        *mutants(solution, "sampler=sampler", "shuffle=True", "sampler=sampler, drop_last=True"),
        *mutants(solution, "batch_size=4", "batch_size=8") + mutants(solution, "lr=0.1", "lr=0.2"),
        *mutants(solution, SAVED, "pass", "torch.save(model, path)"),
    ],
}
