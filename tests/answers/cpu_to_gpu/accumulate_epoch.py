from support.answers import mutant, mutants

from torchcourse_labs.cpu_to_gpu.accumulate_epoch import solution

CLEARED, STEP, SHARE = "optimizer.zero_grad()", "        optimizer.step()", "(len(x) / len(images) if weighted else 1)"
BACKWARD = f"(loss * {SHARE}).backward()"

RIGHT = [
    mutant(
        solution,
        ("images.split(rows)", "images.tensor_split(-(-len(images) // rows))"),
        ("labels.split(rows)", "labels.tensor_split(-(-len(images) // rows))"),
        (CLEARED, "model.zero_grad(set_to_none=False)"),
    ),
    mutant(solution, (CLEARED, ""), (STEP, f"{STEP}; {CLEARED}"), ("total, seen =", f"{CLEARED}; total, seen =")),
]

WRONG = {
    "too_large": [mutant(solution, ("images.split", "images.chunk"), ("labels.split", "labels.chunk"))],
    "not_cleared": mutants(solution, CLEARED, ""),
    "not_weighted": mutants(solution, SHARE, "1"),
    "whole_batch": mutants(solution, "images.split(rows)", "images.to(device).split(rows)"),
    None: [
        mutant(
            solution,
            ("for x, y", "whole = 0\n        for x, y"),
            (BACKWARD, f"whole = whole + loss * {SHARE}"),
            (STEP, "        whole.backward()\n        optimizer.step()"),
        ),
        mutant(solution, (CLEARED, ""), (STEP, f"{STEP}; {CLEARED}")),
        *mutants(solution, "loss.detach()", "loss.item()"),
        *mutants(solution, "loss = F", f"{CLEARED}; loss = F"),
        *mutants(solution, BACKWARD, f"model(x.to(device)); {BACKWARD}"),
        *mutants(solution, STEP, "            optimizer.step()", "        pass"),
        *mutants(solution, SHARE, "len(x) / rows", "1 / len(images.split(rows))"),
        *mutants(solution, "total.item() / seen", "total / seen", "total.item() / len(batches)"),
    ],
}
