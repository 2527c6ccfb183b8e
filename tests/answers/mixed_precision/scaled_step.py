import torch
from support.answers import mutant, mutants
from torch.nn import functional as F

from torchcourse_labs.mixed_precision.scaled_step import solution


def by_hand(model, images, labels, optimizer, scaler, dtype, max_norm):
    with torch.autocast(images.device.type, dtype=dtype):
        logits = model(images)
    loss = F.cross_entropy(logits.float(), labels)
    model.zero_grad()
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    norm = torch.stack([p.grad.norm() for p in model.parameters()]).norm()
    for p in model.parameters():
        p.grad *= (max_norm / norm).clamp(max=1)
    scaler.step(optimizer)
    scaler.update()
    return float(loss.detach())


BACKWARD, UNSCALE, UPDATE = "scaler.scale(loss).backward()", "scaler.unscale_(optimizer)", "scaler.update()"
CLIP, STEP = "nn.utils.clip_grad_norm_(model.parameters(), max_norm)", "scaler.step(optimizer)"

RIGHT = [
    by_hand,
    mutant(
        solution,
        ("optimizer.zero_grad()", "parameters = [*model.parameters()]"),
        (BACKWARD, "gradients = torch.autograd.grad(scaler.scale(loss), parameters)"),
        (UNSCALE, f"for p, gradient in zip(parameters, gradients): p.grad = gradient\n    {UNSCALE}"),
    ),
]

WRONG = {
    "cast_weights": mutants(solution, "model(images)", "model.to(dtype)(images.to(dtype))", "model.half()(images)"),
    "other_dtype": mutants(solution, "dtype=dtype", "dtype=torch.float16", "enabled=False"),
    "old_gradients": mutants(solution, "optimizer.zero_grad()", "pass"),
    "divided_after": [
        *mutants(solution, UNSCALE, "pass", "[p.grad.div_(scaler.get_scale()) for p in model.parameters()]"),
        *mutants(solution, BACKWARD, "scaler.scale(loss); loss.backward()"),
    ],
    "not_skipped": mutants(solution, STEP, "optimizer.step()"),
    "no_update": [
        *mutants(solution, UPDATE, "pass"),
        mutant(solution, (STEP, f"{UPDATE}; {STEP}"), (f"    {UPDATE}\n", "")),
    ],
    None: [
        *mutants(solution, CLIP, "pass", "[nn.utils.clip_grad_norm_(p, max_norm) for p in model.parameters()]"),
        *mutants(solution, "loss.item()", "loss", "scaler.get_scale() * loss.item()", "None"),
        *mutants(solution, STEP, "pass", f"{STEP}; optimizer.step()"),
        *mutants(solution, UNSCALE, f"{UNSCALE}; optimizer.zero_grad()"),
    ],
}
