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


BACKWARD, UNSCALE = "scaler.scale(loss).backward()", "scaler.unscale_(optimizer)"
CLIP, STEP, UPDATE = (
    "nn.utils.clip_grad_norm_(model.parameters(), max_norm)",
    "scaler.step(optimizer)",
    "scaler.update()",
)
LOSS = "    loss = F.cross_entropy(model(images), labels)"

RIGHT = [
    by_hand,
    mutant(
        solution,
        ("optimizer.zero_grad()", "    optimizer.zero_grad()"),
        (BACKWARD, f"    {BACKWARD}"),
        (UPDATE, f"{UPDATE}; optimizer.zero_grad()"),
    ),
    mutant(
        solution,
        ("scaler.scale(loss)", "(scaler.scale(loss) if scaler.is_enabled() else loss)"),
        (STEP, "scaler.step(optimizer) if scaler.is_enabled() else optimizer.step()"),
    ),
    mutant(
        solution,
        ("optimizer.zero_grad()", "parameters = [*model.parameters()]"),
        (BACKWARD, "gradients = torch.autograd.grad(scaler.scale(loss), parameters)"),
        (UNSCALE, f"for p, gradient in zip(parameters, gradients): p.grad = gradient\n    {UNSCALE}"),
    ),
]

WRONG = {
    "cast_weights": mutants(solution, "model(images)", "model.to(dtype)(images.to(dtype))", "model.half()(images)"),
    "other_dtype": mutants(solution, "dtype=dtype", "dtype=torch.float16", "enabled=False")
    + mutants(solution, "loss.item()", "F.cross_entropy(model(images), labels).item()"),
    "call_order": mutants(solution, UPDATE, "pass") + mutants(solution, UNSCALE, f"{UNSCALE}; {UNSCALE}"),
    "old_gradients": mutants(solution, "optimizer.zero_grad()", "pass"),
    "not_scaled": mutants(solution, BACKWARD, "scaler.scale(loss); loss.backward()"),
    "half_loss": [
        mutant(
            solution,
            (LOSS, "    logits = model(images)"),
            ("optimizer.zero", "loss = F.cross_entropy(logits, labels)\n    optimizer.zero"),
        )
    ],
    "divided_after": mutants(
        solution, UNSCALE, "pass", "[p.grad.div_(scaler.get_scale()) for p in model.parameters()]"
    ),
    "not_skipped": mutants(solution, STEP, "optimizer.step()", f"{STEP}; optimizer.step()")
    + mutants(solution, UNSCALE, f"[p.grad.nan_to_num_(0, 0, 0) for p in model.parameters()]; {UNSCALE}"),
    None: [
        *mutants(solution, BACKWARD, f"{BACKWARD}; optimizer.zero_grad()", "scaler.scale(loss)"),
        *mutants(solution, "model(images)", "__import__('copy').deepcopy(model)(images)"),
        *mutants(solution, CLIP, "pass", "nn.utils.clip_grad_value_(model.parameters(), max_norm)"),
        *mutants(solution, CLIP, "[nn.utils.clip_grad_norm_(p, max_norm) for p in model.parameters()]"),
        *mutants(solution, "loss.item()", "loss", "scaler.get_scale() * loss.item()", "None"),
        *mutants(solution, STEP, "pass", "scaler.is_enabled() and scaler.step(optimizer)"),
        *mutants(solution, "optimizer.zero_grad()", "optimizer.zero_grad(); scaler = torch.amp.GradScaler('cpu')"),
        *mutants(solution, "model(images)", "model(images).softmax(1)"),
        *mutants(solution, "max_norm)\n", "max_norm, norm_type=1)\n"),
        *mutants(solution, BACKWARD, "loss.backward()"),
    ],
}
