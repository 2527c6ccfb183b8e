from answers.capstone._training import RESTORE, SAVE, SEED, train, with_states
from support.answers import mutant, mutants

WHOLE = (
    "torch.save({'model': model.state_dict(), 'optimizer': optimizer.state_dict(), 'schedule': schedule.state_dict()"
)
WHOLE += ", 'done': epoch + 1}, path)"

RIGHT = [train, with_states]

WRONG = {
    "returned": mutants(train, "return model", "return model.state_dict()", "return"),
    "once": [
        *mutants(train, "for rows in batches:", "for rows in list(batches)[:-1]:"),
        *mutants(train, "for epoch in", "model.eval()\n    for epoch in"),
    ],
    "adds_up": mutants(train, "optimizer.zero_grad()", "pass"),
    "seed": [
        *mutants(train, "order.set_epoch(epoch)", "pass"),
        *mutants(train, "DistributedSampler(train_set, seed=seed)", "DistributedSampler(train_set)"),
        *mutants(train, SEED, "torch.manual_seed(epoch)"),
    ],
    "not_repeatable": [*mutants(train, SEED, "pass"), *mutants(train, "seed=seed", "seed=torch.initial_seed()")],
    "does_not_finish": mutants(train, "done=epoch + 1", "done=epoch"),
    "other_steps": [
        *mutants(train, "if path.exists():", "if False:"),
        *mutants(train, 'folder / "checkpoint.pt"', 'folder.parent / "checkpoint.pt"'),
    ],
    "resumed_differently": [
        *mutants(train, RESTORE, "checkpoint.restore(path, model=model)"),
        *mutants(train, "order.set_epoch(epoch)", "order.set_epoch(epoch - done)"),
        mutant(train, (SEED, "pass"), ("for epoch in", "torch.manual_seed(seed)\n    for epoch in")),
    ],
    "half_written": mutants(train, SAVE, WHOLE),
    "after_the_end": mutants(train, "return model", "print(loss); return model"),
    None: mutants(train, "loss.backward()", "(-loss).backward()"),
}
