"""Right and wrong answers to the exercises of chapter 07."""

import contextlib
import math

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from torchcourse.checks import mixed_precision

F16, F32 = torch.float16, torch.float32


# spacing_of ----------------------------------------------------------------------------------------------------------
def by_neighbor(value, dtype):
    x = torch.tensor(abs(value), dtype=dtype)
    return (torch.nextafter(x, torch.tensor(math.inf, dtype=dtype)).double() - x.double()).item()


def by_exponent(value, dtype):
    x = torch.tensor(value, dtype=dtype).item()
    return 2.0 ** (math.frexp(x)[1] - 1) * torch.finfo(dtype).eps


def by_logarithm(value, dtype):
    x = torch.tensor(value).to(dtype).double().abs()
    return torch.finfo(dtype).eps * 2 ** x.log2().floor()  # a tensor with one number


def by_bits(value, dtype):
    whole = torch.int32 if dtype == torch.float32 else torch.int16
    x = torch.tensor([abs(value)], dtype=dtype)
    return float((x.view(whole) + 1).view(dtype) - x)


def farther_with_sign(value, dtype):
    x = torch.tensor(value, dtype=dtype)
    return abs(torch.nextafter(x, x * 2) - x)


def by_numpy(value, dtype):
    if dtype == torch.bfloat16:
        return by_bits(value, dtype)
    return np.spacing(torch.tensor(value, dtype=dtype).abs().numpy())


def eps_everywhere(value, dtype):
    return torch.finfo(dtype).eps


def eps_times_value(value, dtype):
    return torch.finfo(dtype).eps * abs(value)


def smallest_number(value, dtype):
    return torch.finfo(dtype).tiny


def resolution(value, dtype):
    return torch.finfo(dtype).resolution


def towards_zero(value, dtype):
    x = torch.tensor(value, dtype=dtype)
    return abs(x - torch.nextafter(x, torch.zeros((), dtype=dtype))).item()


def always_upwards(value, dtype):
    x = torch.tensor(value, dtype=dtype)
    return (torch.nextafter(x, torch.tensor(math.inf, dtype=dtype)) - x).item()


def with_its_sign(value, dtype):
    x = torch.tensor(value, dtype=dtype)
    return (torch.nextafter(x, x * 2) - x).item()


def not_rounded_first(value, dtype):
    return 2.0 ** math.floor(math.log2(abs(value))) * torch.finfo(dtype).eps


def exponent_rounded_up(value, dtype):
    return 2.0 ** math.ceil(math.log2(abs(value))) * torch.finfo(dtype).eps


def exponent_of_frexp(value, dtype):
    return 2.0 ** math.frexp(value)[1] * torch.finfo(dtype).eps


def exponent_cut_to_an_int(value, dtype):
    x = torch.tensor(abs(value), dtype=dtype).item()
    return 2.0 ** int(math.log2(x)) * torch.finfo(dtype).eps


def from_the_value(value, dtype):
    x = torch.tensor(value, dtype=dtype)
    return abs(torch.nextafter(x, x * 2).item() - value)


def always_in_float32(value, dtype):
    x = torch.tensor(value)
    return abs(torch.nextafter(x, 2 * x) - x).item()


def of_python(value, dtype):
    return math.ulp(value)


def one_added(value, dtype):
    x = torch.tensor(value, dtype=dtype)
    return ((x + torch.finfo(dtype).tiny) - x).item()


def log_of_a_negative(value, dtype):
    return torch.finfo(dtype).eps * 2 ** math.floor(math.log2(value))


def logarithm_in_dtype(value, dtype):
    x = torch.tensor(abs(value), dtype=dtype)
    return (torch.finfo(dtype).eps * 2 ** x.log2().floor()).item()


def nan_of_a_negative(value, dtype):
    x = torch.tensor(value, dtype=dtype).double()
    return (torch.finfo(dtype).eps * 2 ** x.log2().floor()).item()


# safe_loss -----------------------------------------------------------------------------------------------------------
def loss_of(features, head, labels, power=None, divide=None):
    power = (features.float() ** 2).mean(dim=1, keepdim=True) if power is None else power
    logits = head(features / power.sqrt())
    penalty = logits.logsumexp(dim=1).square().mean()
    return F.cross_entropy(logits, labels) + 0.01 * penalty


def half(images, dtype=F16, **options):
    return torch.autocast(images.device.type, dtype=dtype, **options)


def one_cast(encoder, head, images, labels):
    with half(images):
        features = encoder(images)
        power = (features.float() * features.float()).mean(dim=1, keepdim=True)
        return loss_of(features, head, labels, power)


def autocast_off_and_cast(encoder, head, images, labels):
    with half(images):
        features = encoder(images)
        with half(images, enabled=False):
            power = features.float().square().mean(dim=1, keepdim=True)
        return loss_of(features, head, labels, power)


def cast_from_there_on(encoder, head, images, labels):
    with half(images):
        return loss_of(encoder(images).float(), head, labels)


def mean_with_dtype(encoder, head, images, labels):
    with half(images):
        features = encoder(images)
        power = torch.linalg.vector_norm(features, dim=1, keepdim=True, dtype=F32) ** 2 / features.shape[1]
        return loss_of(features, head, labels, power)


def made_smaller_first(encoder, head, images, labels):
    with half(images):
        features = encoder(images) / 512
        power = (features * features).mean(dim=1, keepdim=True)
        return loss_of(features, head, labels, power)


def loss_outside_but_float(encoder, head, images, labels):
    with half(images):
        features = encoder(images)
        power = features.double().square().mean(dim=1, keepdim=True).float()
        logits = head(features / power.sqrt())
    logits = logits.float()
    return F.cross_entropy(logits, labels) + 0.01 * logits.logsumexp(1).square().mean()


def in_float64(encoder, head, images, labels):
    with half(images):
        features = encoder(images)
        return loss_of(features, head, labels, features.double().square().mean(dim=1, keepdim=True))


def unchanged(encoder, head, images, labels):
    with half(images):
        features = encoder(images)
        return loss_of(features, head, labels, (features * features).mean(dim=1, keepdim=True))


def cast_too_late(encoder, head, images, labels):
    with half(images):
        features = encoder(images)
        return loss_of(features, head, labels, (features * features).float().mean(dim=1, keepdim=True))


def mean_in_float32(encoder, head, images, labels):
    with half(images):
        features = encoder(images)
        return loss_of(features, head, labels, (features * features).mean(dim=1, keepdim=True, dtype=F32))


def off_without_cast(encoder, head, images, labels):
    with half(images):
        features = encoder(images)
        with half(images, enabled=False):
            power = (features * features).mean(dim=1, keepdim=True)
        return loss_of(features, head, labels, power)


def wrong_operation(encoder, head, images, labels):
    with half(images):
        features = encoder(images)
        power = (features * features).mean(dim=1, keepdim=True)
        logits = head(features / power.sqrt()).float()
        return F.cross_entropy(logits, labels) + 0.01 * logits.logsumexp(dim=1).square().mean()


def no_autocast(encoder, head, images, labels):
    return loss_of(encoder(images), head, labels)


def autocast_for_another_device(encoder, head, images, labels):
    with torch.autocast("meta", dtype=F16):
        return loss_of(encoder(images), head, labels)


def autocast_of_cuda(encoder, head, images, labels):
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with torch.autocast("cuda", dtype=F16):
            return loss_of(encoder(images), head, labels)


def encoder_in_float32(encoder, head, images, labels):
    features = encoder(images)
    with half(images):
        return loss_of(features, head, labels)


def head_in_float32(encoder, head, images, labels):
    with half(images):
        features = encoder(images)
    return loss_of(features.float(), head, labels)


def in_bfloat16(encoder, head, images, labels):
    with half(images, torch.bfloat16):
        features = encoder(images)
        return loss_of(features, head, labels, (features * features).mean(dim=1, keepdim=True))


def dtype_left_out(encoder, head, images, labels):
    with torch.autocast(images.device.type):
        return loss_of(encoder(images), head, labels)


def models_in_half(encoder, head, images, labels):
    encoder.half(), head.half()
    features = encoder(images.half())
    power = features.float().square().mean(1, keepdim=True)
    return loss_of(features, head, labels, power.half())


def clamped(encoder, head, images, labels):
    with half(images):
        features = encoder(images).clamp(-250, 250)
        return loss_of(features, head, labels, (features * features).mean(dim=1, keepdim=True))


def inf_replaced(encoder, head, images, labels):
    with half(images):
        features = encoder(images)
        power = features.float().square().mean(dim=1, keepdim=True)
        return loss_of(features, head, labels, power.clamp(max=65504))


def no_root(encoder, head, images, labels):
    with half(images):
        features = encoder(images)
        return loss_of(features, head, labels, (features.float() ** 2).mean(dim=1, keepdim=True) ** 2)


def power_detached(encoder, head, images, labels):
    with half(images):
        features = encoder(images)
        return loss_of(features, head, labels, features.detach().float().square().mean(dim=1, keepdim=True))


def without_graph(encoder, head, images, labels):
    with torch.no_grad():
        return one_cast(encoder, head, images, labels)


def as_a_number(encoder, head, images, labels):
    return one_cast(encoder, head, images, labels).item()


def loss_in_half(encoder, head, images, labels):
    with half(images):
        features = encoder(images)
        power = features.float().square().mean(dim=1, keepdim=True)
        logits = head(features / power.sqrt())
    return F.cross_entropy(logits, labels) + 0.01 * logits.logsumexp(1).square().mean()


# scaled_step ---------------------------------------------------------------------------------------------------------
def forward(model, images, labels, dtype):
    with torch.autocast(images.device.type, dtype=dtype):
        return F.cross_entropy(model(images), labels)


def step_in_order(model, images, labels, optimizer, scaler, dtype, max_norm):
    optimizer.zero_grad()
    loss = forward(model, images, labels, dtype)
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    nn.utils.clip_grad_norm_(model.parameters(), max_norm)
    scaler.step(optimizer)
    scaler.update()
    return loss.item()


def step_by_hand(model, images, labels, optimizer, scaler, dtype, max_norm):
    loss = forward(model, images, labels, dtype)
    model.zero_grad()
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    norm = torch.stack([p.grad.norm() for p in model.parameters()]).norm()
    for p in model.parameters():
        p.grad *= (max_norm / norm).clamp(max=1)
    scaler.step(optimizer)
    scaler.update()
    return float(loss.detach())


def backward_inside(model, images, labels, optimizer, scaler, dtype, max_norm):
    optimizer.zero_grad(set_to_none=False)
    with torch.autocast(images.device.type, dtype=dtype):  # not needed for the backward pass, and harmless
        logits = model(images)
        loss = F.cross_entropy(logits.float(), labels)
        scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm)
    scaler.step(optimizer)
    scaler.update()
    return loss.detach().cpu().item()


def cleared_twice(model, images, labels, optimizer, scaler, dtype, max_norm):
    loss = step_in_order(model, images, labels, optimizer, scaler, dtype, max_norm)
    optimizer.zero_grad()
    return loss


def plain_without_scaler(model, images, labels, optimizer, scaler, dtype, max_norm):
    if scaler.is_enabled():
        return step_in_order(model, images, labels, optimizer, scaler, dtype, max_norm)
    optimizer.zero_grad()
    loss = forward(model, images, labels, dtype)
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), max_norm)
    optimizer.step()
    return loss.item()


def logits_cast_outside(model, images, labels, optimizer, scaler, dtype, max_norm):
    with torch.autocast(images.device.type, dtype=dtype):
        logits = model(images)
    loss = F.cross_entropy(logits.float(), labels)
    optimizer.zero_grad()
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    nn.utils.clip_grad_norm_(model.parameters(), max_norm)
    scaler.step(optimizer)
    scaler.update()
    return loss.item()


def variant(*calls, loss_fn=forward, returned=lambda loss, scaled: loss.item(), zero=True):
    """A step that makes these calls, in this order, behind a scaled loss."""

    def step(model, images, labels, optimizer, scaler, dtype, max_norm):
        if zero:
            optimizer.zero_grad()
        loss = loss_fn(model, images, labels, dtype)
        scaled = scaler.scale(loss)
        known = {
            "backward": scaled.backward,
            "plain backward": loss.backward,
            "unscale": lambda: scaler.unscale_(optimizer),
            "clip": lambda: nn.utils.clip_grad_norm_(model.parameters(), max_norm),
            "clip values": lambda: nn.utils.clip_grad_value_(model.parameters(), max_norm),
            "stretch": lambda: stretch(model, max_norm),
            "divide": lambda: [p.grad.div_(scaler.get_scale()) for p in model.parameters()],
            "clean": lambda: [p.grad.nan_to_num_(0, 0, 0) for p in model.parameters()],
            "step": lambda: scaler.step(optimizer),
            "bare step": optimizer.step,
            "update": scaler.update,
            "zero": optimizer.zero_grad,
        }
        for name in calls:
            known[name]()
        return returned(loss, scaled)

    return step


def stretch(model, length):
    norm = nn.utils.get_total_norm([p.grad for p in model.parameters()])
    for p in model.parameters():
        p.grad.mul_(length / norm)


def outside(model, images, labels, dtype):
    with torch.autocast(images.device.type, dtype=dtype):
        logits = model(images)
    return F.cross_entropy(logits, labels)


def no_autocast_here(model, images, labels, dtype):
    return F.cross_entropy(model(images), labels)


def default_autocast(model, images, labels, dtype):
    with torch.autocast(images.device.type):
        return F.cross_entropy(model(images), labels)


def always_float16(model, images, labels, dtype):
    return forward(model, images, labels, F16)


def cast_by_hand(model, images, labels, dtype):
    model.to(dtype)
    return F.cross_entropy(model(images.to(dtype)), labels)


def cast_below_autocast(model, images, labels, dtype):
    return forward(model.half(), images, labels, dtype)


def gradients_asked_for(model, images, labels, optimizer, scaler, dtype, max_norm):
    loss, parameters = forward(model, images, labels, dtype), list(model.parameters())
    for p, gradient in zip(parameters, torch.autograd.grad(scaler.scale(loss), parameters), strict=True):
        p.grad = gradient
    scaler.unscale_(optimizer)
    nn.utils.clip_grad_norm_(parameters, max_norm)
    scaler.step(optimizer)
    scaler.update()
    return loss.item()


def scaler_made_anew(model, images, labels, optimizer, scaler, dtype, max_norm):
    return step_in_order(
        model, images, labels, optimizer, torch.amp.GradScaler("cpu", init_scale=256.0), dtype, max_norm
    )


def optimizer_made_anew(model, images, labels, optimizer, scaler, dtype, max_norm):
    fresh = torch.optim.SGD(model.parameters(), lr=0.2)
    return step_in_order(model, images, labels, fresh, scaler, dtype, max_norm)


def step_only_with_a_scaler(model, images, labels, optimizer, scaler, dtype, max_norm):
    if scaler.is_enabled():
        return step_in_order(model, images, labels, optimizer, scaler, dtype, max_norm)
    optimizer.zero_grad()
    loss = forward(model, images, labels, dtype)
    loss.backward()
    return loss.item()


RIGHT_CALLS = ("backward", "unscale", "clip", "step", "update")
clip_first = variant("backward", "clip", "unscale", "step", "update")
unscale_forgotten = variant("backward", "clip", "step", "update")
unscale_twice = variant("backward", "unscale", "clip", "unscale", "step", "update")
update_forgotten = variant("backward", "unscale", "clip", "step")
update_first = variant("backward", "unscale", "clip", "update", "step")
update_twice = variant(*RIGHT_CALLS, "update")
bare_step = variant("backward", "unscale", "clip", "bare step", "update")
only_bare = variant("backward", "bare step", "update")
divided_and_bare = variant("backward", "divide", "clip", "bare step", "update")
divided_twice = variant("backward", "divide", "clip", "step", "update")
both_steps = variant("backward", "unscale", "clip", "step", "bare step", "update")
two_steps = variant("backward", "unscale", "clip", "step", "step", "update")
not_clipped = variant("backward", "unscale", "step", "update")
clip_late = variant("backward", "unscale", "step", "clip", "update")
unscale_late = variant("backward", "step", "unscale", "clip", "update")
clip_values = variant("backward", "unscale", "clip values", "step", "update")
stretched = variant("backward", "unscale", "stretch", "step", "update")
cleaned = variant("backward", "clean", "unscale", "clip", "step", "update")
cleared_late = variant("backward", "zero", "unscale", "clip", "step", "update")
cleared_behind_unscale = variant("backward", "unscale", "clip", "zero", "step", "update")
never_cleared = variant(*RIGHT_CALLS, zero=False)
not_scaled = variant("plain backward", "unscale", "clip", "step", "update")
no_backward = variant("unscale", "clip", "step", "update")
no_step = variant("backward", "unscale", "clip", "update")
loss_outside = variant(*RIGHT_CALLS, loss_fn=outside)
in_float32 = variant(*RIGHT_CALLS, loss_fn=no_autocast_here)
dtype_by_default = variant(*RIGHT_CALLS, loss_fn=default_autocast)
dtype_fixed = variant(*RIGHT_CALLS, loss_fn=always_float16)
model_cast = variant(*RIGHT_CALLS, loss_fn=cast_by_hand)
model_half = variant(*RIGHT_CALLS, loss_fn=cast_below_autocast)
scaled_returned = variant(*RIGHT_CALLS, returned=lambda loss, scaled: scaled.item())
tensor_returned = variant(*RIGHT_CALLS, returned=lambda loss, scaled: loss)
nothing_returned = variant(*RIGHT_CALLS, returned=lambda loss, scaled: None)


def no_scaler_at_all(model, images, labels, optimizer, scaler, dtype, max_norm):
    optimizer.zero_grad()
    loss = forward(model, images, labels, dtype)
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), max_norm)
    optimizer.step()
    return loss.item()


def never_scaled(model, images, labels, optimizer, scaler, dtype, max_norm):
    optimizer.zero_grad()
    loss = forward(model, images, labels, dtype)
    loss.backward()
    scaler.unscale_(optimizer)
    nn.utils.clip_grad_norm_(model.parameters(), max_norm)
    scaler.step(optimizer)
    scaler.update()
    return loss.item()


# rescue_fp16 ---------------------------------------------------------------------------------------------------------
def run(
    *,
    cast=False,
    autocast=F16,
    scaler=lambda x: torch.amp.GradScaler(x.device.type),
    each_step=False,
    each_epoch=False,
    step="scaler",
    update=True,
    rate=0.25,
    back=False,
    optimizer=torch.optim.SGD,
):
    """A training with these properties; `step` is one of scaler, bare, none (no scaler), fixed or skip (by hand)."""

    def train(model, batches, epochs):
        if cast:
            model.half()
        made, own = None, optimizer(model.parameters(), lr=rate)
        for _ in range(epochs):
            made = None if each_epoch else made
            for x, y in batches:
                made = scaler(x) if made is None or each_step else made
                around = torch.autocast(x.device.type, dtype=autocast) if autocast else contextlib.nullcontext()
                with around:
                    loss = F.mse_loss(model(x.half() if cast else x), y.half() if cast else y)
                own.zero_grad()
                if step in ("scaler", "bare"):
                    made.scale(loss).backward()
                    made.step(own) if step == "scaler" else own.step()
                    if update:
                        made.update()
                    continue
                factor = 1 if step == "none" else 1024
                (loss * factor).backward()
                for p in model.parameters():
                    p.grad.div_(factor)
                if step != "skip" or all(p.grad.isfinite().all() for p in model.parameters()):
                    own.step()
        if back:
            model.float()

    return train


def rescued(model, batches, epochs):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.25)
    scaler = torch.amp.GradScaler(batches[0][0].device.type)
    for _ in range(epochs):
        for x, y in batches:
            with torch.autocast(x.device.type, dtype=torch.float16):
                loss = F.mse_loss(model(x), y)
            optimizer.zero_grad()
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()


def rescued_with_unscale_and_losses(model, batches, epochs):
    optimizer, losses = torch.optim.SGD(model.parameters(), lr=0.25), []
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**14, growth_interval=10)
    for _ in range(epochs):
        for x, y in batches:
            optimizer.zero_grad()
            with torch.autocast("cpu", dtype=torch.float16):
                prediction = model(x)
            loss = F.mse_loss(prediction.float(), y)
            scaler.scale(loss).backward()
            scaler.unscale_(optimizer)
            scaler.step(optimizer)
            scaler.update()
            losses.append(loss.item())
    return losses


def not_finite_raised(model, batches, epochs):
    rescued(model, batches, epochs)
    raise ValueError("my own")


def solved_in_float32(model, batches, epochs):
    x, y = (torch.cat(parts) for parts in zip(*(b for b in batches if b[0].abs().max() < 60000), strict=True))
    solution = torch.linalg.lstsq(torch.cat([x, torch.ones(len(x), 1)], dim=1), y).solution
    with torch.no_grad():
        model[0].weight.copy_(solution[:-1].T)
        model[0].bias.copy_(solution[-1])
    with torch.autocast("cpu", dtype=torch.float16):
        model(x[:10])


def loss_in_float16(model, batches, epochs):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.25)
    scaler = torch.amp.GradScaler("cpu")
    for x, y in batches * epochs:
        with torch.autocast("cpu", dtype=torch.float16):
            prediction = model(x)
        loss = F.mse_loss(prediction, y.half())
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()


def bare_step_and_update(model, batches, epochs):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.25)
    scaler = torch.amp.GradScaler("cpu")
    for x, y in batches * epochs:
        with torch.autocast("cpu", dtype=torch.float16):
            loss = F.mse_loss(model(x), y)
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        optimizer.step()


def unscale_twice_in_a_run(model, batches, epochs):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.25)
    scaler = torch.amp.GradScaler("cpu")
    for x, y in batches * epochs:
        with torch.autocast("cpu", dtype=torch.float16):
            loss = F.mse_loss(model(x), y)
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        scaler.unscale_(optimizer)
        scaler.step(optimizer)
        scaler.update()


def script(model, batches, epochs):
    model.half()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.25)
    for _ in range(epochs):
        for x, y in batches:
            loss = F.mse_loss(model(x.half()), y.half())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()


def cast_and_back_skipping(model, batches, epochs):
    run(cast=True, autocast=None, step="skip")(model, batches, epochs)
    model.float()


# choose_dtype --------------------------------------------------------------------------------------------------------
def choice(apart=True, accurate=True, fits=True, must=True, strict=False, middle=False, best="low", other="faster"):
    """A choice with these properties; as they stand, the right one."""

    def choose(table, memory):
        def speed(dtype):
            low, high = table[dtype]["speed"]
            return (low + high) / 2 if middle else low

        base = table[F32]
        room = {d: r for d, r in table.items() if not fits or (r["mib"] < memory if strict else r["mib"] <= memory)}
        if accurate == "overlap":
            ok = {d: r for d, r in room.items() if r["accuracy"][1] >= base["accuracy"][0]}
        elif accurate == "middle":
            ok = {d: r for d, r in room.items() if sum(r["accuracy"]) >= sum(base["accuracy"])}
        elif accurate:
            ok = {d: r for d, r in room.items() if not r["accuracy"][1] < base["accuracy"][0]}
        else:
            ok = room
        faster = []
        for d in ok:
            if d == F32:
                continue
            limit = sum(base["speed"]) / 2 if middle else base["speed"][1] if apart else base["speed"][0]
            gains = speed(d) > limit if apart != "touch" else speed(d) >= limit
            if gains or (must and F32 not in room):
                faster.append(d)
        if not faster:
            return F32
        return max(faster, key=lambda d: table[d]["speed"][best == "high"])

    return choose


right_choice = choice()


def choice_by_elimination(table, memory):
    full = table[torch.float32]
    possible = [d for d in table if table[d]["mib"] <= memory and table[d]["accuracy"][1] >= full["accuracy"][0]]
    possible.sort(key=lambda d: table[d]["speed"][0], reverse=True)
    if torch.float32 not in possible:
        return possible[0]
    for dtype in possible:
        if dtype != torch.float32 and table[dtype]["speed"][0] > full["speed"][1]:
            return dtype
    return torch.float32


def always_half(table, memory):
    return next(d for d in table if d != F32)


def always_full(table, memory):
    return F32


def least_memory(table, memory):
    return min(table, key=lambda d: table[d]["mib"])


def as_text(table, memory):
    return str(right_choice(table, memory)).removeprefix("torch.")


def most_accurate(table, memory):
    fits = [d for d in table if table[d]["mib"] <= memory]
    return max(fits, key=lambda d: table[d]["accuracy"][1])


def accuracies_may_not_touch(table, memory):
    worse = [d for d in table if d != F32 and table[d]["accuracy"][1] <= table[F32]["accuracy"][0]]
    return right_choice({d: row for d, row in table.items() if d not in worse}, memory)


def most_accurate_that_pays(table, memory):
    full = table[F32]
    pays = [
        d
        for d, row in table.items()
        if d != F32
        and row["mib"] <= memory
        and row["accuracy"][1] >= full["accuracy"][0]
        and (row["speed"][0] > full["speed"][1] or full["mib"] > memory)
    ]
    return max(pays, key=lambda d: table[d]["accuracy"][1], default=F32)


def first_that_pays(table, memory):
    full = table[F32]
    for d in (torch.float16, torch.bfloat16):
        if (
            d in table
            and table[d]["mib"] <= memory
            and table[d]["accuracy"][1] >= full["accuracy"][0]
            and (table[d]["speed"][0] > full["speed"][1] or full["mib"] > memory)
        ):
            return d
    return F32


# own_scaler ----------------------------------------------------------------------------------------------------------
def parameters_of(optimizer):
    return [p for group in optimizer.param_groups for p in group["params"]]


def scaler_of_my_own(loss, optimizer, state, growth_interval):
    (loss * state["scale"]).backward()
    gradients = [p.grad for p in parameters_of(optimizer) if p.grad is not None]
    for gradient in gradients:
        gradient /= state["scale"]
    if not all(gradient.isfinite().all() for gradient in gradients):
        state["scale"] /= 2
        state["good"] = 0
        return False
    optimizer.step()
    state["good"] += 1
    if state["good"] == growth_interval:
        state["scale"] *= 2
        state["good"] = 0
    return True


def scaler_with_foreach(loss, optimizer, state, growth_interval):
    scale = state["scale"]
    loss.mul(scale).backward()
    gradients = [p.grad for p in parameters_of(optimizer) if p.grad is not None]
    torch._foreach_mul_(gradients, 1 / scale)
    total = torch.stack([g.sum() for g in gradients]).sum()
    took = bool(torch.isfinite(total))
    if took:
        optimizer.step()
    state["good"] = state["good"] + 1 if took else 0
    state["scale"] = scale * (1 if took else 0.5)
    if state["good"] >= growth_interval:
        state.update(scale=scale * 2, good=0)
    return torch.tensor(took)


def scaler_counting_down(loss, optimizer, state, growth_interval):
    (loss * state["scale"]).backward()
    took = True
    for p in parameters_of(optimizer):
        if p.grad is not None:
            took = took and not (p.grad.isinf().any() or p.grad.isnan().any())
            p.grad = p.grad / state["scale"]
    if took:
        optimizer.step()
    left = state.get("left", growth_interval) - 1 if took else growth_interval
    if not took:
        state["scale"] = state["scale"] / 2
    elif left == 0:
        state["scale"], left = state["scale"] * 2, growth_interval
    state["left"] = left
    return took


def flawed(flaw):
    """The right step but for one flaw."""

    def step(loss, optimizer, state, growth_interval):
        scale = state["scale"]
        scaled = loss if flaw == "loss not scaled" else loss * scale
        scaled.backward()
        having = [p for p in parameters_of(optimizer) if p.grad is not None]
        if flaw == "no skip of None":
            having = parameters_of(optimizer)
        finite = [bool(p.grad.isfinite().all()) for p in having]
        good = all(finite)
        if flaw == "first group":
            good = all(p.grad.isfinite().all() for p in optimizer.param_groups[0]["params"] if p.grad is not None)
        if flaw == "loss looked at":
            good = bool(loss.isfinite())
        if flaw == "inf only":
            good = not any(p.grad.isinf().any() for p in having)
        if flaw == "any":
            good = any(finite)
        if flaw == "end of float16":
            good = all(p.grad.abs().max() < 65504 for p in having)
        if flaw == "always":
            good = True
        if flaw != "not unscaled":
            divisor = scale
            if flaw == "new scale":
                grows = good and state["good"] + 1 >= growth_interval
                divisor = scale * 2 if grows else scale
            for p in having:
                p.grad /= divisor
        if flaw == "cleaned":
            for p in having:
                p.grad.nan_to_num_(0, 0, 0)
        if flaw == "single":
            for p, fine in zip(having, finite, strict=True):
                if not fine:
                    p.grad = None
        if good or flaw in ("cleaned", "single"):
            optimizer.step()
        if flaw == "never skips":
            optimizer.step() if not good else None
        if good or flaw == "bad counts":
            state["good"] += 1
        elif flaw != "streak goes on":
            state["good"] = 0
        if not good and flaw != "no backoff":
            state["scale"] /= 2 ** (finite.count(False) if flaw == "halved for each" else 1)
        late = {"late": 1, "early": -1}.get(flaw, 0)
        if state["good"] >= growth_interval + late and flaw != "no growth":
            state["scale"] *= 4 if flaw == "four times" else 2
            state["good"] = state["good"] if flaw == "count goes on" else 0
        if flaw == "only names":
            state = {"scale": 1.0}
        if flaw == "text":
            state["scale"] = str(state["scale"])
        if flaw == "silent":
            return None
        return not good if flaw == "negated" else loss if flaw == "returns loss" else good

    return step


def no_step_taken(loss, optimizer, state, growth_interval):
    (loss * state["scale"]).backward()
    return True


def local_scale(loss, optimizer, state, growth_interval):
    scale = state["scale"]
    (loss * scale).backward()
    gradients = [p.grad for p in parameters_of(optimizer) if p.grad is not None]
    for gradient in gradients:
        gradient /= scale
    if all(g.isfinite().all() for g in gradients):
        optimizer.step()
        return True
    scale = scale / 2
    return False


RIGHT = {
    "spacing_of": [by_neighbor, by_exponent, by_logarithm, by_bits, farther_with_sign, by_numpy],
    "safe_loss": [
        one_cast,
        autocast_off_and_cast,
        cast_from_there_on,
        mean_with_dtype,
        made_smaller_first,
        loss_outside_but_float,
    ],
    "scaled_step": [
        step_in_order,
        step_by_hand,
        backward_inside,
        cleared_twice,
        plain_without_scaler,
        logits_cast_outside,
        gradients_asked_for,
        mixed_precision.borrowed_step,
    ],
    "rescue_fp16": [
        rescued,
        rescued_with_unscale_and_losses,
        run(scaler=lambda x: torch.amp.GradScaler("cpu", init_scale=256.0)),
        run(step="skip"),
        mixed_precision.borrowed_rescue,
    ],
    "choose_dtype": [right_choice, choice_by_elimination, choice(accurate="overlap"), mixed_precision.borrowed_choice],
    "own_scaler": [scaler_of_my_own, scaler_with_foreach, scaler_counting_down],
}

WRONG = {
    "spacing_of": [
        (eps_everywhere, "between 1 and the next"),
        (eps_times_value, "multiplied eps by the value"),
        (smallest_number, "smallest number above zero"),
        (resolution, "power of ten"),
        (towards_zero, "side of zero"),
        (always_upwards, "farther from zero is down"),
        (with_its_sign, "negative"),
        (not_rounded_first, "round it first"),
        (exponent_rounded_up, "twice too large"),
        (exponent_of_frexp, "twice too large"),
        (exponent_cut_to_an_int, "twice too large"),
        (from_the_value, "measured from the value itself"),
        (always_in_float32, "gap of float32"),
        (of_python, "gap of float64"),
        (one_added, "zero"),
        (log_of_a_negative, "math domain error"),
        (nan_of_a_negative, "logarithm of a negative"),
        (logarithm_in_dtype, "a logarithm is rounded"),
    ],
    "safe_loss": [
        (unchanged, "`mul` in float16"),
        (cast_too_late, "comes too late"),
        (mean_in_float32, "comes too late"),
        (off_without_cast, "casts nothing"),
        (wrong_operation, "overflows"),
        (no_autocast, "compute in float32"),
        (autocast_of_cuda, "another kind of device"),
        (encoder_in_float32, "some layers compute in float32"),
        (head_in_float32, "some layers compute in float32"),
        (in_bfloat16, "fewer digits"),
        (dtype_left_out, "bfloat16"),
        (models_in_half, "casts the weights"),
        (clamped, "cut"),
        (inf_replaced, "cut"),
        (in_float64, "leaves float64 alone"),
        (no_root, "another loss"),
        (power_detached, "or the graph is"),
        (without_graph, "no graph"),
        (as_a_number, "not a tensor"),
        (loss_in_half, "left autocast"),
    ],
    "scaled_step": [
        (clip_first, "still multiplied by the scale"),
        (unscale_forgotten, "`scaler.unscale_(optimizer)` is missing"),
        (unscale_twice, "unscale twice"),
        (update_forgotten, "`scaler.update()` is missing"),
        (update_first, "update the scaler before the step"),
        (update_twice, "more than once"),
        (bare_step, "optimizer.step()` yourself"),
        (only_bare, "optimizer.step()` yourself"),
        (divided_and_bare, "optimizer.step()` yourself"),
        (divided_twice, "both by you and by"),
        (both_steps, "optimizer.step()` yourself"),
        (two_steps, "twice for one batch"),
        (not_clipped, "not clipped"),
        (clip_late, "not clipped"),
        (unscale_late, "unscale after the step"),
        (clip_values, "clipped each value"),
        (stretched, "made a short gradient longer"),
        (cleaned, "infinite gradients changed the weights"),
        (cleared_late, "cleared between backward and step"),
        (cleared_behind_unscale, "cleared between backward and step"),
        (never_cleared, "old gradients are still there"),
        (not_scaled, "was not scaled"),
        (no_backward, "gradient"),
        (no_step, "no step"),
        (loss_outside, "outside autocast"),
        (in_float32, "compute in float32"),
        (dtype_by_default, "do not name a dtype"),
        (dtype_fixed, "whatever dtype was asked"),
        (model_cast, "casts the weights"),
        (model_half, "casts the weights"),
        (scaled_returned, "scaled loss"),
        (tensor_returned, ".item()"),
        (nothing_returned, "returned None"),
        (no_scaler_at_all, "optimizer.step()` yourself"),
        (never_scaled, "never went through the scaler"),
        (scaler_made_anew, "scaler that you made yourself"),
        (optimizer_made_anew, "not by the optimizer that came in"),
        (step_only_with_a_scaler, "a scaler that is switched off"),
    ],
    "rescue_fp16": [
        (script, "casts the weights"),
        (run(cast=True, autocast=None), "because the weights are"),
        (run(cast=True, autocast=None, step="skip", back=True), "casts the weights"),
        (run(cast=True, step="skip", back=True), "casts the weights"),
        (run(step="none"), "nan"),
        (run(step="bare"), "optimizer.step()` yourself"),
        (bare_step_and_update, "weights are nan"),
        (run(step="fixed"), "overflows float16"),
        (run(scaler=lambda x: torch.amp.GradScaler("cpu", init_scale=1.0)), "stands still"),
        (run(update=False), "updated"),
        (unscale_twice_in_a_run, "each call once"),
        (run(each_step=True), "make the scaler once"),
        (run(scaler=lambda x: torch.amp.GradScaler()), "cuda"),
        (run(autocast=torch.bfloat16), "bfloat16"),
        (run(autocast=None), "compute in float32"),
        (run(rate=1e-4), "did not come near"),
        (not_finite_raised, "my own"),
        (solved_in_float32, "too few batches"),
        (loss_in_float16, "as autocast makes it"),
    ],
    "choose_dtype": [
        (choice(apart=False), "ranges of speed overlap"),
        (choice(middle=True), "ranges of speed overlap"),
        (choice(apart="touch"), "ranges of speed touch"),
        (choice(accurate=False), "less accurate"),
        (choice(accurate="middle"), "ranges of accuracy overlap"),
        (choice(fits=False), "cannot run"),
        (choice(must=False), "does not fit"),
        (choice(strict=True), "exactly as much memory"),
        (choice(best="high"), "slowest run"),
        (first_that_pays, "slowest run"),
        (always_half, "slower on this machine"),
        (always_full, "it pays"),
        (least_memory, "slower on this machine"),
        (most_accurate, "ranges of accuracy overlap"),
        (as_text, "a string"),
        (accuracies_may_not_touch, "ranges of accuracy touch"),
        (most_accurate_that_pays, "slowest run"),
    ],
    "own_scaler": [
        (flawed("loss not scaled"), "never multiplied"),
        (flawed("not unscaled"), "still multiplied by the scale"),
        (flawed("new scale"), "after it has changed"),
        (flawed("no skip of None"), "nonetype"),
        (flawed("first group"), "only at some of the parameters"),
        (flawed("loss looked at"), "look at the loss"),
        (flawed("inf only"), "look for inf alone"),
        (flawed("any"), "infinite gradients went"),
        (flawed("always"), "infinite gradients went"),
        (flawed("never skips"), "infinite gradients went"),
        (flawed("cleaned"), "skip"),
        (flawed("single"), "skip the whole step"),
        (flawed("bad counts"), "skipped steps count"),
        (flawed("streak goes on"), "counted in a row"),
        (flawed("no backoff"), "does not shrink"),
        (flawed("halved for each"), "once for each parameter"),
        (flawed("late"), "one step too late"),
        (flawed("early"), "one step too early"),
        (flawed("no growth"), "never grows"),
        (flawed("count goes on"), "with every further step"),
        (flawed("four times"), "is not that of"),
        (flawed("text"), "no longer a number"),
        (flawed("silent"), "returned None"),
        (flawed("negated"), "wrong way round"),
        (flawed("returns loss"), "what you return"),
        (no_step_taken, "weights are what they were"),
        (local_scale, "scale"),
        (flawed("end of float16"), "beyond 65504"),
    ],
}
