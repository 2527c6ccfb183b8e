import copy

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


def with_copy(model, batches, epochs):
    """A copy in half precision computes the gradients for the weights of the model."""
    low, scale = copy.deepcopy(model).half(), 2.0**16
    optimizer = torch.optim.SGD(model.parameters(), lr=0.25)
    for x, y in batches * epochs:
        low.load_state_dict(model.state_dict())
        loss = F.mse_loss(low(x.half()).float(), y)
        for p, grad in zip(model.parameters(), torch.autograd.grad(loss * scale, [*low.parameters()]), strict=True):
            p.grad = grad.float() / scale
        if all(p.grad.isfinite().all() for p in model.parameters()):
            optimizer.step()
        else:
            scale /= 2


SCALER, STEP, UPDATE = "torch.amp.GradScaler(batches[0][0].device.type)", "scaler.step(optimizer)", "scaler.update()"
SCALE, LOSS, EPOCHS = "scaler.scale(loss)", "F.mse_loss(model(x), y)", "range(epochs)"

RIGHT = [
    by_hand,
    with_copy,
    mutant(
        solution,
        (SCALER, "torch.amp.GradScaler('cpu', init_scale=256.0)"),
        ("torch.optim.SGD(model.parameters(), lr=0.25)", "torch.optim.SGD(model.parameters(), lr=0.2, momentum=0.1)"),
        (STEP, f"scaler.unscale_(optimizer); {STEP}"),
    ),
]

WRONG = {
    "other_dtype": mutants(solution, "dtype=torch.float16", "dtype=torch.bfloat16"),
    "nan": [
        mutant(solution, (SCALE, "loss"), (STEP, "optimizer.step()"), (UPDATE, "pass")),
        *mutants(solution, SCALER, "torch.amp.GradScaler()", "torch.amp.GradScaler('cpu', enabled=False)"),
    ],
    "half_weights": [
        *mutants(solution, "optimizer = torch.optim", "model.half(); optimizer = torch.optim"),
        *mutants(solution, LOSS, "F.mse_loss(model.half()(x.half()), y.half())"),
    ],
    "no_gradients": mutants(solution, STEP, f"optimizer.zero_grad(); {STEP}"),
    "no_scaler_step": mutants(solution, STEP, "optimizer.step()"),
    "no_step": [
        *mutants(solution, "with torch", f"scaler = {SCALER}\n            with torch"),
        mutant(by_hand, ("loss * 1024", "loss * 2**15"), ("div_(1024)", "div_(2**15)")),
    ],
    "another_model": [lambda model, batches, epochs: solution(copy.deepcopy(model), batches, epochs)],
    "changes_data": mutants(solution, LOSS, "F.mse_loss(model(x), y.mul_(1.0 + 1e-6))"),
    None: [
        mutant(solution, (LOSS, "model(x)"), (SCALE, "scaler.scale(F.mse_loss(loss, y.half()))")),
        *mutants(by_hand, "p.grad.div_(1024)", "pass"),
        *mutants(solution, LOSS, "F.mse_loss(model(x), y, reduction='sum')"),
        *mutants(solution, EPOCHS, "range(1)"),
        *mutants(solution, STEP, f"{STEP}; {STEP}"),
        *mutants(solution, UPDATE, "pass"),
        *mutants(solution, "torch.optim.SGD", "torch.optim.Adam"),
    ],
}
