import numpy as np
import torch
from support.answers import mutants

from torchcourse_labs.mixed_precision.own_scaler import solution


def with_foreach(loss, optimizer, state, growth_interval):
    scale = state["scale"]
    loss.mul(scale).backward()
    gradients = [p.grad for group in optimizer.param_groups for p in group["params"] if p.grad is not None]
    torch._foreach_mul_(gradients, 1 / scale)
    took = torch.stack([g.sum() for g in gradients]).sum().isfinite()
    if took:
        optimizer.step()
    state["good"] = state["good"] + 1 if took else 0
    state["scale"] = scale * (1 if took else 0.5)
    if state["good"] >= growth_interval:
        state.update(scale=torch.as_tensor(scale * 2), good=0)
    return took


def of_pytorch(loss, optimizer, state, growth_interval):
    scaler = state.setdefault("scaler", torch.amp.GradScaler("cpu", 1024.0, growth_interval=growth_interval))
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    before = scaler.get_scale()
    scaler.update()
    state["scale"] = scaler.get_scale()
    return np.bool_(state["scale"] >= before)


RIGHT = [with_foreach, of_pytorch]

FINITE, DIVIDE = "all(parameter.grad.isfinite().all() for parameter in parameters)", "parameter.grad /= scale"
SKIP, STEP = "state.update(scale=scale / 2, good=0)", "    optimizer.step()"

WRONG = {
    "still_scaled": mutants(solution, DIVIDE, "pass"),
    "partial_step": [
        *mutants(solution, FINITE, "True", "all(p.grad.isfinite().all() for p in parameters[:1])"),
        *mutants(solution, SKIP, f"[p.grad.nan_to_num_(0, 0, 0) for p in parameters]; optimizer.step(); {SKIP}"),
        *mutants(solution, DIVIDE, f"{DIVIDE}; parameter.grad.nan_to_num_(0, 0, 0)"),
    ],
    "no_gradient": mutants(solution, " if p.grad is not None", ""),
    None: [
        *mutants(solution, STEP, "    pass"),
        *mutants(solution, SKIP, "state.update(scale=max(scale / 2, 1.0), good=0)"),
        *mutants(solution, "scale=scale * 2, good=0", "good=0", "scale=scale * 2"),
        *mutants(solution, "== growth_interval", "> growth_interval"),
        *mutants(solution, "return True", "return None"),
    ],
}
