import torch
from support.answers import mutant, mutants
from torch.nn import functional as F

from torchcourse_labs.mixed_precision.rescue_fp16 import solution


def by_hand(model, batches, epochs):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.25)
    for x, y in batches * epochs:
        with torch.autocast("cpu", dtype=torch.float16):
            loss = F.mse_loss(model(x), y)
        optimizer.zero_grad()
        (loss * 1024).backward()
        for p in model.parameters():
            p.grad.div_(1024)
        if all(p.grad.isfinite().all() for p in model.parameters()):
            optimizer.step()


SCALER, STEP, UPDATE = "torch.amp.GradScaler(batches[0][0].device.type)", "scaler.step(optimizer)", "scaler.update()"
SCALE, LOSS = "scaler.scale(loss)", "F.mse_loss(model(x), y)"

RIGHT = [
    by_hand,
    mutant(
        solution,
        (SCALER, "torch.amp.GradScaler('cpu', init_scale=256.0)"),
        (f"loss = {LOSS}", "prediction = model(x)"),
        ("optimizer.zero_grad()", "optimizer.zero_grad(); loss = F.mse_loss(prediction.float(), y)"),
        (STEP, f"scaler.unscale_(optimizer); {STEP}"),
    ),
    mutant(
        solution,
        ("torch.optim.SGD(model.parameters(), lr=0.25)", "torch.optim.SGD(model.parameters(), lr=0.2, momentum=0.1)"),
        ("for x, y in batches", "for x, y in reversed(batches)"),
        (UPDATE, f"{UPDATE}; model.zero_grad()"),
    ),
]

WRONG = {
    "cast_weights": mutants(solution, LOSS, "F.mse_loss(model.half()(x.half()), y.half())")
    + mutants(by_hand, LOSS, "F.mse_loss(model.half()(x.half()), y.half())"),
    "other_dtype": mutants(solution, "dtype=torch.float16", "dtype=torch.bfloat16", "enabled=False"),
    "old_gradients": mutants(solution, "optimizer.zero_grad()", "pass"),
    "nan": [
        mutant(solution, (SCALE, "loss"), (STEP, "optimizer.step()"), (UPDATE, "pass")),
        *mutants(solution, SCALER, "torch.amp.GradScaler()"),
    ],
    "ends_early": mutants(solution, "in batches", "in batches[:2]") + mutants(solution, "range(epochs)", "range(1)"),
    "all_skipped": [
        *mutants(solution, "with torch", f"scaler = {SCALER}\n            with torch"),
        mutant(by_hand, ("loss * 1024", "loss * 2**15"), ("div_(1024)", "div_(2**15)")),
    ],
    "zero_gradients": [
        *mutants(solution, SCALER, "torch.amp.GradScaler('cpu', init_scale=1.0)"),
        mutant(solution, (SCALE, "loss"), (STEP, "loss.isfinite() and optimizer.step()"), (UPDATE, "pass")),
    ],
    "changes_data": mutants(solution, LOSS, "F.mse_loss(model(x), y.mul_(1.0 + 1e-6))"),
    None: [
        *mutants(solution, STEP, f"{STEP}; {STEP}"),
        *mutants(solution, STEP, f"torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0); {STEP}"),
        *mutants(solution, STEP, "optimizer.step()"),
        *mutants(solution, UPDATE, "pass"),
        *mutants(solution, SCALE, "scaler.scale(loss * 1e-3)"),
        *mutants(solution, LOSS, "F.mse_loss(model(x), 1000 * y)"),
        *mutants(solution, "torch.optim.SGD", "torch.optim.Adam"),
        *mutants(solution, STEP, f"[p.grad.nan_to_num_() for p in model.parameters()]; {STEP}"),
        *mutants(solution, "optimizer = torch", "model = __import__('copy').deepcopy(model); optimizer = torch"),
    ],
}
