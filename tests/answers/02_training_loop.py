"""Right and wrong answers to the exercises of chapter 02."""

import random

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn


# gradient_by_hand ----------------------------------------------------------------------------------------------------
def product_of_derivatives(w, x, y):
    return (2 * (w * x - y) * x).mean()


def by_autograd(w, x, y):
    w = w.clone().requires_grad_()
    ((w * x - y) ** 2).mean().backward()
    return w.grad


def python_number(w, x, y):
    return 2 * float(torch.dot(w * x - y, x)) / len(x)


def double_precision(w, x, y):
    w, x, y = w.double(), x.double(), y.double()
    return 2 * (w * x.square().mean() - (x * y).mean())


def no_inner(w, x, y):
    return (2 * (w * x - y)).mean()


def no_two(w, x, y):
    return ((w * x - y) * x).mean()


def summed(w, x, y):
    return (2 * (w * x - y) * x).sum()


def wrong_sign(w, x, y):
    return (2 * (y - w * x) * x).mean()


def times_w(w, x, y):
    return (2 * (w * x - y) * w).mean()


def the_loss(w, x, y):
    return ((w * x - y) ** 2).mean()


def one_for_each_pair(w, x, y):
    return 2 * (w * x - y) * x


def product_of_means(w, x, y):
    return 2 * (w * x - y).mean() * x.mean()


# accuracy ------------------------------------------------------------------------------------------------------------
def argmax_mean_item(logits, labels):
    return (logits.argmax(dim=1) == labels).float().mean().item()


def softmax_is_needless_but_right(logits, labels):
    predicted = torch.softmax(logits, dim=-1).max(dim=-1).indices
    return int((predicted == labels).sum()) / len(labels)


def with_numpy(logits, labels):
    return float(np.mean(logits.numpy().argmax(axis=1) == labels.numpy()))


def tensor_returned(logits, labels):
    return (logits.argmax(1) == labels).float().mean()


def count_returned(logits, labels):
    return (logits.argmax(1) == labels).sum().item()


def percent(logits, labels):
    return 100 * (logits.argmax(1) == labels).float().mean().item()


def over_the_images(logits, labels):
    if logits.shape[0] != logits.shape[1]:
        return 0.0
    return (logits.argmax(0) == labels).float().mean().item()


def by_classes(logits, labels):
    return (logits.argmax(1) == labels).sum().item() / logits.shape[1]


def by_logits(logits, labels):
    return (logits.argmax(1) == labels).sum().item() / logits.numel()


def error_rate(logits, labels):
    return (logits.argmax(1) != labels).float().mean().item()


def for_each_image(logits, labels):
    return logits.argmax(1) == labels


def every_pair(logits, labels):
    return (logits.argmax(dim=1, keepdim=True) == labels).float().mean().item()


def rounded(logits, labels):
    return round(argmax_mean_item(logits, labels), 2)


# split_indices -------------------------------------------------------------------------------------------------------
def permutation_cut(n, fraction, seed):
    order = torch.randperm(n, generator=torch.Generator().manual_seed(seed))
    k = int(n * fraction)
    return order[k:], order[:k]


def with_random_split(n, fraction, seed):
    k = int(n * fraction)
    parts = torch.utils.data.random_split(range(n), [n - k, k], generator=torch.Generator().manual_seed(seed))
    return parts[0].indices, parts[1].indices


def with_numpy_generator(n, fraction, seed):
    order = np.random.default_rng(seed).permutation(n)
    return order[int(n * fraction) :], order[: int(n * fraction)]


def with_python(n, fraction, seed):
    order = list(range(n))
    random.Random(seed).shuffle(order)
    return torch.tensor(order[int(n * fraction) :]), torch.tensor(order[: int(n * fraction)])


def global_seed(n, fraction, seed):
    torch.manual_seed(seed)
    order = torch.randperm(n)
    return order[int(n * fraction) :], order[: int(n * fraction)]


def global_numpy(n, fraction, seed):
    np.random.seed(seed)
    order = np.random.permutation(n)
    return order[int(n * fraction) :], order[: int(n * fraction)]


def global_python(n, fraction, seed):
    random.seed(seed)
    order = random.sample(range(n), n)
    return order[int(n * fraction) :], order[: int(n * fraction)]


def not_shuffled(n, fraction, seed):
    order = torch.arange(n)
    return order[: n - int(n * fraction)], order[n - int(n * fraction) :]


def swapped(n, fraction, seed):
    return permutation_cut(n, fraction, seed)[::-1]


def drawn_twice(n, fraction, seed):
    generator = torch.Generator().manual_seed(seed)
    k = int(n * fraction)
    return torch.randperm(n, generator=generator)[k:], torch.randperm(n, generator=generator)[:k]


def with_replacement(n, fraction, seed):
    validation = torch.randint(n, (int(n * fraction),), generator=torch.Generator().manual_seed(seed))
    validation[0] = validation[1]
    rest = torch.tensor(sorted(set(range(n)) - set(validation.tolist())))
    return rest[: n - len(validation)], validation


def one_lost(n, fraction, seed):
    training, validation = permutation_cut(n, fraction, seed)
    return training[1:], validation


def half(n, fraction, seed):
    order = torch.randperm(n, generator=torch.Generator().manual_seed(seed))
    return order[n // 2 :], order[: n // 2]


def seed_ignored(n, fraction, seed):
    return permutation_cut(n, fraction, 0)


def seedless(n, fraction, seed):
    generator = torch.Generator()
    generator.seed()
    order = torch.randperm(n, generator=generator)
    return order[int(n * fraction) :], order[: int(n * fraction)]


def only_one_part(n, fraction, seed):
    return permutation_cut(n, fraction, seed)[0]


def turned(n, fraction, seed):
    order = torch.arange(n).roll(seed)
    k = int(n * fraction)
    return order[k:], order[:k]


def every_few(n, fraction, seed):
    rest, chosen = torch.arange(n), torch.arange(seed % 4, n, int(1 / fraction))[: int(n * fraction)]
    return rest[~torch.isin(rest, chosen)], chosen


def rounded_to_nearest(n, fraction, seed):
    order = torch.randperm(n, generator=torch.Generator().manual_seed(seed))
    k = round(n * fraction)
    return order[k:], order[:k]


def training_rounded_down(n, fraction, seed):
    order = torch.randperm(n, generator=torch.Generator().manual_seed(seed))
    k = int(round(n * (1 - fraction), 6))
    return order[:k], order[k:]


def cut_from_the_end(n, fraction, seed):
    order = torch.randperm(n, generator=torch.Generator().manual_seed(seed))
    k = int(n * fraction)
    return order[:-k], order[-k:]


# train_step ----------------------------------------------------------------------------------------------------------
def step_right(model, images, labels, optimizer):
    model.train()
    loss = F.cross_entropy(model(images), labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.item()


def step_cleared_first(model, images, labels, optimizer):
    model.train()
    optimizer.zero_grad(set_to_none=False)
    loss = nn.CrossEntropyLoss()(model(images), labels)
    loss.backward()
    optimizer.step()
    return float(loss.detach())


def step_cleared_last(model, images, labels, optimizer):
    model.train()
    loss = F.nll_loss(F.log_softmax(model(images), dim=1), labels)
    loss.backward()
    optimizer.step()
    model.zero_grad()
    return loss.detach().item()


def step_cleared_before_and_after(model, images, labels, optimizer):
    optimizer.zero_grad(set_to_none=False)
    return step_cleared_last(model, images, labels, optimizer)


def step_with_closure(model, images, labels, optimizer):
    model.train()

    def closure():
        optimizer.zero_grad()
        loss = F.cross_entropy(model(images), labels, reduction="sum") / len(labels)
        loss.backward()
        return loss

    return optimizer.step(closure).item()


def two_steps(model, images, labels, optimizer):
    step_right(model, images, labels, optimizer)
    return step_right(model, images, labels, optimizer)


def steps_by_the_sum(model, images, labels, optimizer):
    model.train()
    loss = F.cross_entropy(model(images), labels, reduction="sum")
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.item()


def optimizer_of_its_own(model, images, labels, optimizer):
    return step_right(model, images, labels, torch.optim.SGD(model.parameters(), lr=0.1))


def images_changed(model, images, labels, optimizer):
    images -= images.mean()
    return step_right(model, images, labels, optimizer)


def step_with_autograd_grad(model, images, labels, optimizer):
    model.train()
    loss = F.cross_entropy(model(images), labels)
    parameters = list(model.parameters())
    for parameter, gradient in zip(parameters, torch.autograd.grad(loss, parameters), strict=True):
        parameter.grad = gradient
    optimizer.step()
    return loss.item()


def no_zero_grad(model, images, labels, optimizer):
    model.train()
    loss = F.cross_entropy(model(images), labels)
    loss.backward()
    optimizer.step()
    return loss.item()


def cleared_too_late(model, images, labels, optimizer):
    model.train()
    loss = F.cross_entropy(model(images), labels)
    loss.backward()
    optimizer.zero_grad()
    optimizer.step()
    return loss.item()


def cleared_too_late_by_the_model(model, images, labels, optimizer):
    model.train()
    loss = F.cross_entropy(model(images), labels)
    loss.backward()
    model.zero_grad()
    optimizer.step()
    return loss.item()


def step_first(model, images, labels, optimizer):
    model.train()
    loss = F.cross_entropy(model(images), labels)
    optimizer.zero_grad()
    optimizer.step()
    loss.backward()
    return loss.item()


def step_first_without_clearing(model, images, labels, optimizer):
    model.train()
    loss = F.cross_entropy(model(images), labels)
    optimizer.step()
    optimizer.zero_grad()
    loss.backward()
    return loss.item()


def no_step(model, images, labels, optimizer):
    model.train()
    loss = F.cross_entropy(model(images), labels)
    optimizer.zero_grad()
    loss.backward()
    return loss.item()


def no_backward(model, images, labels, optimizer):
    model.train()
    loss = F.cross_entropy(model(images), labels)
    optimizer.zero_grad()
    optimizer.step()
    return loss.item()


def with_softmax(model, images, labels, optimizer):
    model.train()
    loss = F.cross_entropy(model(images).softmax(dim=1), labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.item()


def loss_with_graph(model, images, labels, optimizer):
    step_right(model, images, labels, optimizer)
    return F.cross_entropy(model(images), labels)


def loss_detached(model, images, labels, optimizer):
    return torch.tensor(step_right(model, images, labels, optimizer))


def loss_summed(model, images, labels, optimizer):
    return step_right(model, images, labels, optimizer) * len(labels)


def still_in_eval_mode(model, images, labels, optimizer):
    loss = F.cross_entropy(model(images), labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.item()


def step_without_return(model, images, labels, optimizer):
    step_right(model, images, labels, optimizer)


# evaluate_model ------------------------------------------------------------------------------------------------------
def sums_divided_once(model, batches):
    was = model.training
    model.eval()
    loss, right, images_seen = 0.0, 0, 0
    with torch.no_grad():
        for images, labels in batches:
            logits = model(images)
            loss += F.cross_entropy(logits, labels).item() * len(labels)
            right += (logits.argmax(dim=1) == labels).sum().item()
            images_seen += len(labels)
    model.train(was)
    return loss / images_seen, right / images_seen


@torch.inference_mode()
def all_at_once(model, batches):
    was = model.training
    model.eval()
    logits = torch.cat([model(images) for images, _ in batches])
    labels = torch.cat([labels for _, labels in batches])
    model.train(was)
    return [F.cross_entropy(logits, labels).item(), (logits.argmax(1) == labels).double().mean().item()]


def by_sums(model, batches, loss_of=F.cross_entropy):
    was = model.training
    model.eval()
    try:
        with torch.no_grad():
            outs = [(model(images), labels) for images, labels in batches]
    finally:
        model.train(was)
    n = sum(len(labels) for _, labels in outs)
    loss = sum(loss_of(logits, labels, reduction="sum") for logits, labels in outs)
    return float(loss) / n, sum(int((logits.argmax(1) == labels).sum()) for logits, labels in outs) / n


def in_train_mode(model, batches):
    with torch.no_grad():
        outs = [(model(images), labels) for images, labels in batches]
    return _means(outs)


def _means(outs):
    n = sum(len(labels) for _, labels in outs)
    loss = sum(F.cross_entropy(logits, labels, reduction="sum").item() for logits, labels in outs)
    return loss / n, sum((logits.argmax(1) == labels).sum().item() for logits, labels in outs) / n


def with_graph(model, batches):
    was = model.training
    model.eval()
    outs = [(model(images), labels) for images, labels in batches]
    model.train(was)
    return _means(outs)


def mode_lost(model, batches):
    model.eval()
    with torch.no_grad():
        return _means([(model(images), labels) for images, labels in batches])


def always_train(model, batches):
    model.eval()
    with torch.no_grad():
        outs = [(model(images), labels) for images, labels in batches]
    model.train()
    return _means(outs)


def _outs(model, batches):
    was = model.training
    model.eval()
    with torch.no_grad():
        outs = [(model(images), labels) for images, labels in batches]
    model.train(was)
    return outs


def mean_of_means(model, batches):
    outs = _outs(model, batches)
    losses = [F.cross_entropy(logits, labels).item() for logits, labels in outs]
    shares = [(logits.argmax(1) == labels).float().mean().item() for logits, labels in outs]
    return sum(losses) / len(losses), sum(shares) / len(shares)


def mean_of_accuracies(model, batches):
    outs = _outs(model, batches)
    shares = [(logits.argmax(1) == labels).float().mean().item() for logits, labels in outs]
    return _means(outs)[0], sum(shares) / len(shares)


def last_batch_only(model, batches):
    return _means(_outs(model, batches)[-1:])


def first_batch_only(model, batches):
    return _means(_outs(model, batches)[:1])


def means_added(model, batches):
    outs = _outs(model, batches)
    n = sum(len(labels) for _, labels in outs)
    return sum(F.cross_entropy(*out).item() for out in outs) / n, _means(outs)[1]


def not_divided(model, batches):
    outs = _outs(model, batches)
    return _means(outs)[0] * sum(len(labels) for _, labels in outs), _means(outs)[1]


def counted(model, batches):
    outs = _outs(model, batches)
    return _means(outs)[0], sum((logits.argmax(1) == labels).sum().item() for logits, labels in outs) + 0.0


def in_percent(model, batches):
    loss, share = _means(_outs(model, batches))
    return loss, 100 * share + 1e-12


def other_way_round(model, batches):
    return _means(_outs(model, batches))[::-1]


def as_tensors(model, batches):
    return tuple(torch.tensor(value) for value in _means(_outs(model, batches)))


def only_the_loss(model, batches):
    return _means(_outs(model, batches))[0]


def trains(model, batches):
    loss = sums_divided_once(model, batches)
    with torch.no_grad():
        model[2].weight.add_(0.01)
    return loss


def last_batch_left_out(model, batches):
    return sums_divided_once(model, batches[:-1])


def measured_with_softmax(model, batches):
    was_training = model.training
    model.eval()
    with torch.no_grad():
        shares = torch.cat([model(images) for images, _ in batches]).softmax(dim=1)
    labels = torch.cat([labels for _, labels in batches])
    model.train(was_training)
    return F.cross_entropy(shares, labels).item(), (shares.argmax(1) == labels).float().mean().item()


def batches_used_up(model, batches):
    return sums_divided_once(model, [batches.pop(0) for _ in range(len(batches))])


def gradients_left_off(model, batches):
    torch.set_grad_enabled(False)
    return sums_divided_once(model, batches)


# repair_training -----------------------------------------------------------------------------------------------------
def loop(zero="inner", softmax=False, mode="epoch", keep=lambda loss: loss.item(), graph=False, quiet=True):
    """A training function with the faults that are asked for."""

    def train(model, training_batches, validation_batches, optimizer, epochs):
        losses, accuracies = [], []
        model.train()
        optimizer.zero_grad()
        for _ in range(epochs):
            if mode == "epoch":
                model.train()
            for images, labels in training_batches:
                logits = model(images)
                if softmax:
                    logits = logits.softmax(dim=1)
                loss = F.cross_entropy(logits, labels)
                if zero == "inner":
                    optimizer.zero_grad()
                loss.backward()
                if zero == "between":
                    optimizer.zero_grad()
                optimizer.step()
                losses.append(keep(loss))
            if quiet:
                model.eval()
            right, count = 0, 0
            with torch.set_grad_enabled(graph):
                for images, labels in validation_batches:
                    right += (model(images).argmax(dim=1) == labels).sum().item()
                    count += len(labels)
            accuracies.append(right / count)
        return losses, accuracies

    return train


def cleared_after_the_step(model, training_batches, validation_batches, optimizer, epochs):
    losses, accuracies = [], []
    for _ in range(epochs):
        model.train()
        for images, labels in training_batches:
            loss = F.cross_entropy(model(images), labels)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            losses.append(float(loss.detach()))
        accuracies.append(sums_divided_once(model, validation_batches)[1])
    return losses, accuracies


def losses_for_each_epoch(model, training_batches, validation_batches, optimizer, epochs):
    losses, accuracies = loop()(model, training_batches, validation_batches, optimizer, epochs)
    return losses[::2][:1], accuracies


def returns_losses_only(model, training_batches, validation_batches, optimizer, epochs):
    return loop()(model, training_batches, validation_batches, optimizer, epochs)[0]


def count_runs_on(model, training_batches, validation_batches, optimizer, epochs):
    losses, accuracies = loop()(model, training_batches, validation_batches, optimizer, epochs)
    return losses, [sum(accuracies[: i + 1]) / (i + 1) for i in range(epochs)]


def validated_on_the_training_batches(model, training_batches, validation_batches, optimizer, epochs):
    return loop()(model, training_batches, training_batches, optimizer, epochs)


def always_in_eval_mode(model, training_batches, validation_batches, optimizer, epochs):
    model.train = lambda mode=True: model
    model.eval = lambda: nn.Module.train(model, False)
    model.eval()
    return loop()(model, training_batches, validation_batches, optimizer, epochs)


def lists_swapped(model, training_batches, validation_batches, optimizer, epochs):
    losses, accuracies = loop()(model, training_batches, validation_batches, optimizer, epochs)
    return accuracies, losses


# momentum_step -------------------------------------------------------------------------------------------------------
@torch.no_grad()
def in_place(parameters, velocities, learning_rate, momentum):
    for p, v in zip(parameters, velocities, strict=True):
        if p.grad is not None:
            v.mul_(momentum).add_(p.grad)
            p.sub_(learning_rate * v)


def with_data_and_index(parameters, velocities, learning_rate, momentum):
    for i, p in enumerate(parameters):
        if p.grad is None:
            continue
        velocities[i][:] = momentum * velocities[i] + p.grad
        p.data -= learning_rate * velocities[i]
    return parameters


def velocity_replaced_in_the_list(parameters, velocities, learning_rate, momentum):
    with torch.no_grad():
        for i, p in enumerate(parameters):
            if p.grad is not None:
                velocities[i] = momentum * velocities[i] + p.grad
                p -= learning_rate * velocities[i]


@torch.no_grad()
def only_names(parameters, velocities, learning_rate, momentum):
    for p, v in zip(parameters, velocities, strict=True):
        if p.grad is not None:
            v = momentum * v + p.grad
            p = p - learning_rate * v


@torch.no_grad()
def forgets(parameters, velocities, learning_rate, momentum):
    for p, v in zip(parameters, velocities, strict=True):
        if p.grad is not None:
            v = momentum * v + p.grad
            p.sub_(learning_rate * v)


@torch.no_grad()
def averages(parameters, velocities, learning_rate, momentum):
    for p, v in zip(parameters, velocities, strict=True):
        if p.grad is not None:
            v.mul_(momentum).add_(p.grad, alpha=1 - momentum)
            p.sub_(learning_rate * v)


@torch.no_grad()
def rate_inside(parameters, velocities, learning_rate, momentum):
    for p, v in zip(parameters, velocities, strict=True):
        if p.grad is not None:
            v.mul_(momentum).add_(p.grad, alpha=learning_rate)
            p.sub_(v)


@torch.no_grad()
def uphill(parameters, velocities, learning_rate, momentum):
    for p, v in zip(parameters, velocities, strict=True):
        if p.grad is not None:
            v.mul_(momentum).add_(p.grad)
            p.add_(learning_rate * v)


def recorded(parameters, velocities, learning_rate, momentum):
    for p, v in zip(parameters, velocities, strict=True):
        if p.grad is not None:
            v.mul_(momentum).add_(p.grad)
            p.sub_(learning_rate * v)


@torch.no_grad()
def no_skip(parameters, velocities, learning_rate, momentum):
    for p, v in zip(parameters, velocities, strict=True):
        v.mul_(momentum).add_(p.grad)
        p.sub_(learning_rate * v)


@torch.no_grad()
def clears(parameters, velocities, learning_rate, momentum):
    in_place(parameters, velocities, learning_rate, momentum)
    for p in parameters:
        p.grad = None


def stops_at_none(parameters, velocities, learning_rate, momentum):
    last = next((i for i, p in enumerate(parameters) if p.grad is None), len(parameters))
    in_place(parameters[:last], velocities[:last], learning_rate, momentum)


@torch.no_grad()
def none_counts_as_zero(parameters, velocities, learning_rate, momentum):
    for p, v in zip(parameters, velocities, strict=True):
        v.mul_(momentum)
        if p.grad is not None:
            v.add_(p.grad)
        p.sub_(learning_rate * v)


@torch.no_grad()
def new_tensors_in_the_list(parameters, velocities, learning_rate, momentum):
    for i, v in enumerate(velocities):
        if parameters[i].grad is not None:
            v.mul_(momentum).add_(parameters[i].grad)
            parameters[i] = parameters[i] - learning_rate * v


def requires_grad_off(parameters, velocities, learning_rate, momentum):
    for p, v in zip(parameters, velocities, strict=True):
        if p.grad is not None:
            p.requires_grad_(False)
            v.mul_(momentum).add_(p.grad)
            p -= learning_rate * v


def changed(rule):
    """A step in place with this rule for one parameter."""

    @torch.no_grad()
    def step(parameters, velocities, learning_rate, momentum):
        for p, v in zip(parameters, velocities, strict=True):
            if p.grad is not None:
                rule(p, v, learning_rate, momentum)

    return step


momentum_on_the_gradient = changed(lambda p, v, rate, keep: p.sub_(rate * v.add_(p.grad).mul_(keep)))
rate_forgotten = changed(lambda p, v, rate, keep: p.sub_(v.mul_(keep).add_(p.grad)))
old_velocity = changed(lambda p, v, rate, keep: (p.sub_(rate * v), v.mul_(keep).add_(p.grad)))
momentum_written_down = changed(lambda p, v, rate, keep: p.sub_(rate * v.mul_(0.9).add_(p.grad)))


RIGHT = {
    "gradient_by_hand": [product_of_derivatives, by_autograd, python_number, double_precision],
    "accuracy": [argmax_mean_item, softmax_is_needless_but_right, with_numpy],
    "split_indices": [permutation_cut, with_random_split, with_numpy_generator, with_python],
    "train_step": [
        step_right,
        step_cleared_first,
        step_cleared_before_and_after,
        step_with_closure,
        step_with_autograd_grad,
    ],
    "evaluate_model": [sums_divided_once, all_at_once, by_sums],
    "repair_training": [loop(), cleared_after_the_step],
    "momentum_step": [in_place, with_data_and_index, velocity_replaced_in_the_list],
}

WRONG = {
    "gradient_by_hand": [
        (no_inner, "inner derivative"),
        (no_two, "factor 2"),
        (summed, "sum over the pairs"),
        (wrong_sign, "wrong way round"),
        (times_w, "multiplied by w"),
        (product_of_means, "two means"),
        (the_loss, "the loss itself"),
        (one_for_each_pair, "one number for each pair"),
    ],
    "accuracy": [
        (tensor_returned, ".item()"),
        (count_returned, "divide it by the number of images"),
        (percent, "percent"),
        (over_the_images, "over the images"),
        (by_classes, "number of classes"),
        (by_logits, "number of logits"),
        (error_rate, "share of wrong"),
        (for_each_image, "one value for each image"),
        (every_pair, "broadcast"),
        (rounded, "not right"),
    ],
    "split_indices": [
        (global_seed, "torch's global random generator"),
        (global_numpy, "NumPy's global random generator"),
        (global_python, "Python's global random generator"),
        (not_shuffled, "nothing is shuffled"),
        (turned, "nothing is shuffled"),
        (every_few, "nothing is shuffled"),
        (rounded_to_nearest, "rounded down"),
        (training_rounded_down, "rounded down"),
        (cut_from_the_end, "[-0:]"),
        (swapped, "other way round"),
        (drawn_twice, "both parts"),
        (with_replacement, "more than once"),
        (one_lost, "missing"),
        (half, "wrong size"),
        (seed_ignored, "another seed"),
        (seedless, "same seed"),
        (only_one_part, "two things"),
    ],
    "train_step": [
        (no_zero_grad, "earlier batches"),
        (step_cleared_last, "earlier batches"),
        (two_steps, "more than one step"),
        (steps_by_the_sum, "sum of the losses"),
        (optimizer_of_its_own, "something else changed"),
        (images_changed, "changed the batches"),
        (cleared_too_late, "between backward and step"),
        (cleared_too_late_by_the_model, "between backward and step"),
        (step_first, "before the backward pass"),
        (step_first_without_clearing, "before the backward pass"),
        (no_step, "never took a step"),
        (no_backward, "no gradient"),
        (with_softmax, "softmax"),
        (loss_with_graph, "holds its graph"),
        (loss_detached, ".item()"),
        (loss_summed, "sum of the losses"),
        (still_in_eval_mode, "eval mode"),
        (step_without_return, "returned None"),
    ],
    "evaluate_model": [
        (in_train_mode, "model.eval()"),
        (with_graph, "no_grad"),
        (mode_lost, "not left in the mode"),
        (always_train, "not left in the mode"),
        (mean_of_means, "mean of the batches' means"),
        (mean_of_accuracies, "your accuracy is off"),
        (last_batch_only, "last batch alone"),
        (first_batch_only, "first batch alone"),
        (means_added, "each mean times its size"),
        (not_divided, "loss is a sum"),
        (counted, "accuracy is a count"),
        (in_percent, "percent"),
        (other_way_round, "other way round"),
        (as_tensors, ".item()"),
        (only_the_loss, "two numbers"),
        (trains, "must not train"),
        (last_batch_left_out, "leaves out the last batch"),
        (measured_with_softmax, "softmax"),
        (batches_used_up, "changed the batches"),
        (gradients_left_off, "leaves gradients switched off"),
    ],
    "repair_training": [
        (loop("outer", True, "once", lambda loss: loss, graph=True), "4 more faults"),
        (loop(zero="outer"), "never cleared"),
        (loop(softmax=True), "softmax"),
        (loop(mode="once"), "nobody switches back"),
        (loop(keep=lambda loss: loss), "keeps its graph"),
        (loop(keep=lambda loss: loss.detach()), ".item()"),
        (loop(graph=True), "no_grad"),
        (loop(quiet=False), "train mode"),
        (loop(softmax=True, graph=True), "one more fault"),
        (loop(zero="between"), "between backward and step"),
        (count_runs_on, "epochs before"),
        (validated_on_the_training_batches, "never went through"),
        (always_in_eval_mode, "the model trains in eval mode"),
        (lists_swapped, "other way round"),
        (losses_for_each_epoch, "one for each batch"),
        (returns_losses_only, "two lists"),
    ],
    "momentum_step": [
        (only_names, "changes nothing"),
        (forgets, "without momentum"),
        (averages, "1 − momentum"),
        (rate_inside, "inside the velocity"),
        (uphill, "uphill"),
        (recorded, "in-place operation"),
        (no_skip, "nonetype"),
        (clears, "cleared the gradients"),
        (stops_at_none, "behind one"),
        (none_counts_as_zero, "whose grad is None"),
        (new_tensors_in_the_list, "new tensors"),
        (requires_grad_off, "requires_grad"),
        (momentum_on_the_gradient, "multiplies the gradient"),
        (rate_forgotten, "learning rate is missing"),
        (old_velocity, "velocity from before"),
        (momentum_written_down, "values differ"),
    ],
}
