"""Right and wrong answers to the exercises of chapter 03."""

import copy
import io

import numpy as np
import torch
import torch.nn.functional as F


# to_numpy ------------------------------------------------------------------------------------------------------------
def four_words(tensor):
    return tensor.detach().cpu().numpy().copy()


def clone_first(tensor):
    return tensor.detach().cpu().clone().numpy()


def copied_by_numpy(tensor):
    with torch.no_grad():
        return np.array(tensor.cpu().detach().numpy())


def copy_asked_of_to(tensor):
    return tensor.data.to("cpu", copy=True).numpy()


def by_force(tensor):
    return tensor.numpy(force=True).copy()


def gradients_off(tensor):
    with torch.no_grad():  # there `.numpy()` asks for no `.detach()`
        return tensor.cpu().numpy().copy()


def made_zero_first(tensor):
    return tensor.detach().cpu().numpy() + 0


def plain(tensor):
    return tensor.numpy()


def forgot_detach(tensor):
    return tensor.cpu().numpy().copy()


def forgot_cpu(tensor):
    return tensor.detach().numpy().copy()


def shares(tensor):
    return tensor.detach().cpu().numpy()


def through_numbers(tensor):
    return np.array(tensor.tolist())


def still_a_tensor(tensor):
    return tensor.detach().cpu().clone()


def a_list(tensor):
    return tensor.tolist()


def detached_in_place(tensor):
    return tensor.detach_().cpu().numpy().copy()


def switched_off(tensor):
    if tensor.is_leaf:
        tensor.requires_grad_(False)
    return tensor.detach().cpu().numpy().copy()


def flattened(tensor):
    return tensor.detach().cpu().numpy().flatten()


# keep_weights --------------------------------------------------------------------------------------------------------
def cloned(model):
    return {name: value.detach().cpu().clone() for name, value in model.state_dict().items()}


def copied(model):
    return {name: value.to("cpu", copy=True) for name, value in model.state_dict().items()}


def through_a_file(model):
    file = io.BytesIO()
    torch.save(model.state_dict(), file)
    file.seek(0)
    return torch.load(file, map_location="cpu")


def copied_model(model):
    return copy.deepcopy(model).cpu().state_dict()


def looks_like_a_copy(model):
    return {name: value.detach().cpu() for name, value in model.state_dict().items()}


def the_dictionary(model):
    return model.state_dict()


def deep(model):
    return copy.deepcopy(model.state_dict())


def only_parameters(model):
    return {name: value.detach().cpu().clone() for name, value in model.named_parameters()}


def with_graph(model):
    kept = {name: value.cpu().clone() for name, value in model.named_parameters()}
    return kept | {name: value.cpu().clone() for name, value in model.named_buffers()}


def moved_the_model(model):
    return {name: value.clone() for name, value in model.cpu().state_dict().items()}


def arrays(model):
    return {name: value.detach().cpu().numpy().copy() for name, value in model.state_dict().items()}


def a_list_of_tensors(model):
    return [value.detach().cpu().clone() for value in model.state_dict().values()]


# migrate_training ----------------------------------------------------------------------------------------------------
def one_training(
    model,
    batches,
    device,
    epochs,
    *,
    send=None,
    read="epoch",
    scale=255,
    momentum=0.9,
    divide=True,
    move_model=True,
):
    """The migrated training, with a place for each mistake."""
    if move_model:
        model.to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=momentum)
    send = send or (lambda images, labels: (images.to(device).float() / scale, labels.to(device)))
    losses = []
    for _ in range(epochs):
        total = torch.zeros((), device=device)
        for images, labels in batches:
            images, labels = send(images, labels)
            loss = F.cross_entropy(model(images), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total = total + loss.detach()
        losses.append(total / len(batches) if divide else total)
    return torch.stack(losses).tolist() if read == "epoch" else losses


def read_once(model, batches, device, epochs):
    return one_training(model, batches, device, epochs)


def read_each_epoch(model, batches, device, epochs):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)  # before .to: no state yet, so it is fine
    model = model.to(device)
    means = []
    for _ in range(epochs):
        losses = []
        for images, labels in batches:
            pixels = images.to(device, non_blocking=True)
            loss = F.cross_entropy(model(pixels.float().div(255)), labels.to(device, non_blocking=True))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.detach())
        means.append(torch.stack(losses).mean().item())
    return means


def all_sent_before(model, batches, device, epochs):
    there = [(images.to(device), labels.to(device)) for images, labels in batches]
    return one_training(model, there, device, epochs)


def one_reading_for_all(model, batches, device, epochs):
    model.to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    sums = torch.zeros(epochs, device=device)
    for epoch in range(epochs):
        for images, labels in batches:
            loss = F.cross_entropy(model(images.to(device, non_blocking=True) / 255), labels.to(device))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            sums[epoch] += loss.detach()
    return (sums / len(batches)).tolist()


def moved_back(model, batches, device, epochs):
    losses = one_reading_for_all(model, batches, device, epochs)
    model.cpu()
    return losses


def trained_a_copy(model, batches, device, epochs):
    return one_reading_for_all(copy.deepcopy(model), batches, device, epochs)


def left_on_the_cpu(model, batches, device, epochs):
    return one_training(model, batches, torch.device("cpu"), epochs)


def model_left_behind(model, batches, device, epochs):
    return one_training(model, batches, device, epochs, move_model=False)


def labels_left_behind(model, batches, device, epochs):
    return one_training(model, batches, device, epochs, send=lambda x, y: (x.to(device).float() / 255, y))


def floats_travel(model, batches, device, epochs):
    return one_training(model, batches, device, epochs, send=lambda x, y: ((x.float() / 255).to(device), y.to(device)))


def float_labels(model, batches, device, epochs):
    return one_training(
        model, batches, device, epochs, send=lambda x, y: (x.to(device) / 255, torch.FloatTensor(y.tolist()).to(device))
    )


def one_by_one(model, batches, device, epochs):
    def send(images, labels):
        return torch.stack([image.to(device) for image in images]).float() / 255, labels.to(device)

    return one_training(model, batches, device, epochs, send=send)


def labels_twice(model, batches, device, epochs):
    def send(images, labels):
        labels.to(device)
        return images.to(device).float() / 255, labels.to(device)

    return one_training(model, batches, device, epochs, send=send)


def reads_each_step(model, batches, device, epochs):
    model.to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    losses = []
    for _ in range(epochs):
        total = 0.0
        for images, labels in batches:
            images, labels = images.to(device), labels.to(device)
            loss = F.cross_entropy(model(images.float() / 255), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item()
        losses.append(total / len(batches))
    return losses


def looks_each_step(model, batches, device, epochs):
    def send(images, labels):
        labels = labels.to(device)
        if labels.max() < 0:
            raise ValueError
        return images.to(device).float() / 255, labels

    return one_training(model, batches, device, epochs, send=send)


def brings_back_each_step(model, batches, device, epochs):
    def send(images, labels):
        images = images.to(device)
        images.cpu()
        return images.float() / 255, labels.to(device)

    return one_training(model, batches, device, epochs, send=send)


def tensors_kept(model, batches, device, epochs):
    return one_training(model, batches, device, epochs, read="never")


def forgot_the_mean(model, batches, device, epochs):
    return one_training(model, batches, device, epochs, divide=False)


def not_scaled(model, batches, device, epochs):
    return one_training(model, batches, device, epochs, scale=1)


def without_momentum(model, batches, device, epochs):
    return one_training(model, batches, device, epochs, momentum=0)


def nothing_returned(model, batches, device, epochs):
    one_training(model, batches, device, epochs)


def one_loss_per_batch(model, batches, device, epochs):
    model.to(device)
    return [0.5] * (epochs * len(batches))


# quiet_evaluation ----------------------------------------------------------------------------------------------------
def read_in_one_go(model, batches):
    device = batches[0][0].device
    right, sure, worst = (torch.zeros((), device=device) for _ in range(3))
    with torch.no_grad():
        for images, labels in batches:
            logits = model(images)
            right += (logits.argmax(1) == labels).sum()
            worst = torch.maximum(worst, F.cross_entropy(logits, labels, reduction="none").max())
            sure += (logits.softmax(1).amax(1) > 0.9).sum()
    right, worst, sure = torch.stack([right, worst, sure]).tolist()
    return right / sum(len(labels) for _, labels in batches), worst, int(sure)


def three_readings(model, batches):
    rights, worsts, sures, seen = [], [], [], 0
    with torch.no_grad():
        for images, labels in batches:
            logits = model(images)
            losses = F.cross_entropy(logits, labels, reduction="none")
            rights.append((logits.argmax(1) == labels).sum())
            worsts.append(losses.max())
            sures.append((logits.softmax(1).amax(1) > 0.9).sum())
            seen += len(labels)
    return torch.stack(rights).sum().item() / seen, torch.stack(worsts).max().item(), torch.stack(sures).sum().item()


def all_at_once(model, batches):
    images, labels = (torch.cat(part) for part in zip(*batches, strict=True))
    with torch.no_grad():
        logits = model(images)
    right = (logits.argmax(1) == labels).float().mean()
    worst = F.cross_entropy(logits, labels, reduction="none").max()
    return right.item(), worst.item(), int((logits.softmax(1).amax(1) > 0.9).sum())


def by_where_and_any(model, batches):
    right, worst, sure, seen = 0, [], 0, 0
    with torch.inference_mode():
        for images, labels in batches:
            logits = model(images)
            right = right + torch.eq(logits.argmax(1), labels).sum()
            worst.append((-logits.log_softmax(1)).gather(1, labels[:, None]).max())
            sure = sure + logits.softmax(1).gt(0.9).any(1).sum()
            seen += len(labels)
        return float(right) / seen, torch.stack(worst).max().item(), int(sure)


def quiet(model, batches, share=None):
    """Right, but for gradients that stay on; share: how the accuracy comes from (counts, sizes), both lists."""
    counts, sizes, worst, sure = [], [], torch.zeros((), device=batches[0][0].device), 0
    for images, labels in batches:
        logits = model(images)
        counts.append((logits.argmax(1) == labels).sum())
        sizes.append(len(labels))
        worst = torch.maximum(worst, F.cross_entropy(logits, labels, reduction="none").max())
        sure = sure + (logits.softmax(1).amax(1) > 0.9).sum()
    accuracy = share(counts, sizes) if share else sum(counts) / sum(sizes)
    return accuracy.item(), worst.item(), sure.item()


def gradients_left_on(model, batches):
    return quiet(model, batches)


@torch.no_grad()
def mean_of_means(model, batches):
    def share(counts, sizes):
        return sum(c / n for c, n in zip(counts, sizes, strict=True)) / len(sizes)

    return quiet(model, batches, share)


def as_given(model, batches):
    right, seen, worst, sure = 0.0, 0, 0.0, 0
    with torch.no_grad():
        for images, labels in batches:
            logits = model(images)
            right += float((logits.argmax(1) == labels).sum())
            losses = F.cross_entropy(logits, labels, reduction="none")
            if losses.max() > worst:
                worst = losses.max()
            top = logits.softmax(1).amax(1)
            sure += len(top[top > 0.9])
            seen += len(labels)
    return right / seen, float(worst), sure


def if_left(model, batches):
    right, seen, worst, sure = 0, 0, 0.0, 0
    with torch.no_grad():
        for images, labels in batches:
            logits = model(images)
            right += (logits.argmax(1) == labels).sum()
            losses = F.cross_entropy(logits, labels, reduction="none")
            if losses.max() > worst:
                worst = losses.max()
            sure += (logits.softmax(1).amax(1) > 0.9).sum()
            seen += len(labels)
    return right.item() / seen, float(worst), sure.item()


def pythons_max(model, batches):
    right, seen, worst, sure = 0, 0, 0.0, 0
    with torch.no_grad():
        for images, labels in batches:
            logits = model(images)
            right += (logits.argmax(1) == labels).sum()
            losses = F.cross_entropy(logits, labels, reduction="none").amax()
            worst = max(worst, losses)
            sure += (logits.softmax(1).amax(1) > 0.9).sum()
            seen += len(labels)
    return right.item() / seen, float(worst), sure.item()


def mask_left(model, batches):
    right, seen, worst, sure = 0, 0, torch.zeros((), device=batches[0][0].device), 0
    with torch.no_grad():
        for images, labels in batches:
            logits = model(images)
            right += (logits.argmax(1) == labels).sum()
            worst = torch.maximum(worst, F.cross_entropy(logits, labels, reduction="none").max())
            top = logits.softmax(1).amax(1)
            sure += len(top[top > 0.9])
            seen += len(labels)
    return right.item() / seen, float(worst), sure


def number_left(model, batches):
    right, seen, worst, sure = 0.0, 0, torch.zeros((), device=batches[0][0].device), 0
    with torch.no_grad():
        for images, labels in batches:
            logits = model(images)
            right += (logits.argmax(1) == labels).sum().item()
            worst = torch.maximum(worst, F.cross_entropy(logits, labels, reduction="none").max())
            sure += (logits.softmax(1).amax(1) > 0.9).sum()
            seen += len(labels)
    return right / seen, float(worst), sure.item()


def tensors_returned(model, batches):
    right, seen, worst, sure = 0, 0, torch.zeros((), device=batches[0][0].device), 0
    with torch.no_grad():
        for images, labels in batches:
            logits = model(images)
            right += (logits.argmax(1) == labels).sum()
            worst = torch.maximum(worst, F.cross_entropy(logits, labels, reduction="none").max())
            sure += (logits.softmax(1).amax(1) > 0.9).sum()
            seen += len(labels)
    return right / seen, worst, sure


def counted_not_shared(model, batches):
    right, worst, sure = read_in_one_go(model, batches)
    return right * sum(len(labels) for _, labels in batches), worst, sure


def last_batch_only(model, batches):
    share, _, sure = read_in_one_go(model, batches)
    images, labels = batches[-1]
    with torch.no_grad():
        return share, F.cross_entropy(model(images), labels).item(), sure


def never_sure(model, batches):
    share, worst, _ = read_in_one_go(model, batches)
    return share, worst, 0


# choose_batch_size ---------------------------------------------------------------------------------------------------
def smallest_of_the_good(curve, share, largest):
    fits = {size: rate for size, rate in curve.items() if size <= largest}
    return min(size for size, rate in fits.items() if rate >= share * max(fits.values()))


def by_going_up(curve, share, largest):
    best = max(curve[size] for size in curve if size <= largest)
    for size in sorted(curve):
        if curve[size] >= share * best:
            return size


def with_numpy(curve, share, largest):
    sizes = np.array(sorted(size for size in curve if size <= largest))
    rates = np.array([curve[size] for size in sizes])
    return sizes[rates >= share * rates.max()][0]


def strictly_smaller(curve, share, largest):
    fits = {size: rate for size, rate in curve.items() if size < largest}
    return min(size for size in fits if fits[size] >= share * max(fits.values()))


def strictly_better(curve, share, largest):
    fits = {size: rate for size, rate in curve.items() if size <= largest}
    return min(size for size in fits if fits[size] > share * max(fits.values()))


def the_quickest(curve, share, largest):
    return max((size for size in curve if size <= largest), key=curve.get)


def memory_forgotten(curve, share, largest):
    return max(curve)


def best_of_all(curve, share, largest):
    return min(size for size, rate in curve.items() if rate >= share * max(curve.values()) and size <= largest)


def first_in_the_dictionary(curve, share, largest):
    best = max(rate for size, rate in curve.items() if size <= largest)
    return next(size for size, rate in curve.items() if rate >= share * best and size <= largest)


def largest_good(curve, share, largest):
    fits = {size: rate for size, rate in curve.items() if size <= largest}
    return max(size for size, rate in fits.items() if rate >= share * max(fits.values()))


def a_throughput(curve, share, largest):
    return curve[smallest_of_the_good(curve, share, largest)]


def the_smallest(curve, share, largest):
    return min(curve)


def never_measured(curve, share, largest):
    return 3


# accumulate_epoch ----------------------------------------------------------------------------------------------------
def in_pieces(model, batches, optimizer, device, rows, *, loss_of=None, clear=False, step=False, read=False, keep=1.0):
    """The epoch in pieces, with a place for each mistake."""
    loss_of = loss_of or (lambda logits, y, batch: F.cross_entropy(logits, y, reduction="sum") / batch)
    total, seen = torch.zeros((), device=device), 0
    for images, labels in batches:
        optimizer.zero_grad()
        for x, y in zip(images.split(rows), labels.split(rows), strict=True):
            if clear:
                optimizer.zero_grad()
            x, y = x.to(device), y.to(device)
            logits = model(x)
            loss = loss_of(logits, y, len(images))
            loss.backward()
            total += F.cross_entropy(logits.detach(), y, reduction="sum") * keep
            if read:
                loss.item()
            if step:
                optimizer.step()
        if not step:
            optimizer.step()
        seen += len(images)
    return total.item() / seen


def sums(model, batches, optimizer, device, rows):
    return in_pieces(model, batches, optimizer, device, rows)


def means_weighed(model, batches, optimizer, device, rows):
    model.train()
    losses = []
    for images, labels in batches:
        optimizer.zero_grad(set_to_none=False)
        for start in range(0, len(images), rows):
            x, y = images[start : start + rows].to(device), labels[start : start + rows].to(device)
            loss = F.cross_entropy(model(x), y) * len(y)
            loss.div(len(labels)).backward()
            losses.append(loss.detach())
        optimizer.step()
    return float(torch.stack(losses).sum() / sum(len(labels) for _, labels in batches))


def divided_before_the_step(model, batches, optimizer, device, rows):
    total, seen = torch.zeros((), device=device), 0
    optimizer.zero_grad()
    for images, labels in batches:
        for x, y in zip(images.split(rows), labels.split(rows), strict=True):
            loss = F.cross_entropy(model(x.to(device)), y.to(device), reduction="sum")
            loss.backward()
            total += loss.detach()
        for parameter in model.parameters():
            parameter.grad /= len(images)
        optimizer.step()
        optimizer.zero_grad()
        seen += len(images)
    return total.item() / seen


def equal_pieces(model, batches, optimizer, device, rows):
    total, seen = 0, 0
    for images, labels in batches:
        model.zero_grad()
        pieces = -(-len(images) // rows)
        labels = labels.to(device)  # small: the whole batch's labels may travel at once
        for x, y in zip(images.tensor_split(pieces), labels.tensor_split(pieces), strict=True):
            loss = F.cross_entropy(model(x.to(device)), y) * len(y) / len(labels)
            loss.backward()
            total = total + loss.detach() * len(labels)
        optimizer.step()
        seen += len(images)
    return float(total) / seen


def cleared(when, divide_by="batch"):
    """Right but for the moments at which gradients are cleared, or for what a piece's sum is divided by."""

    def epoch(model, batches, optimizer, device, rows):
        total, seen = torch.zeros((), device=device), 0
        if when == "once":
            optimizer.zero_grad()
        for images, labels in batches:
            if when == "before":
                optimizer.zero_grad()
            for x, y in zip(images.split(rows), labels.split(rows), strict=True):
                loss = F.cross_entropy(model(x.to(device)), y.to(device), reduction="sum")
                (loss / {"batch": len(images), "piece": rows, "nothing": 1}[divide_by]).backward()
                total += loss.detach()
            optimizer.step()
            if when == "after":
                optimizer.zero_grad()
            seen += len(images)
        return total.item() / seen

    return epoch


def sent_whole(model, batches, optimizer, device, rows):
    return sums(model, [(x.to(device), y.to(device)) for x, y in batches], optimizer, device, rows)


def one_backward(model, batches, optimizer, device, rows):
    total, seen = 0, 0
    for images, labels in batches:
        optimizer.zero_grad()
        loss = 0
        for x, y in zip(images.split(rows), labels.split(rows), strict=True):
            loss = loss + F.cross_entropy(model(x.to(device)), y.to(device), reduction="sum")
        (loss / len(images)).backward()
        optimizer.step()
        total, seen = total + loss.detach(), seen + len(images)
    return float(total) / seen


def not_weighed(model, batches, optimizer, device, rows):
    return in_pieces(model, batches, optimizer, device, rows, loss_of=lambda out, y, batch: F.cross_entropy(out, y))


def by_pieces(model, batches, optimizer, device, rows):
    def loss_of(out, y, batch):
        return F.cross_entropy(out, y) / -(-batch // rows)

    return in_pieces(model, batches, optimizer, device, rows, loss_of=loss_of)


def cleared_for_each_piece(model, batches, optimizer, device, rows):
    return in_pieces(model, batches, optimizer, device, rows, clear=True)


def step_for_each_piece(model, batches, optimizer, device, rows):
    return in_pieces(
        model,
        batches,
        optimizer,
        device,
        rows,
        loss_of=lambda out, y, batch: F.cross_entropy(out, y),
        clear=True,
        step=True,
    )


def read_for_each_piece(model, batches, optimizer, device, rows):
    return in_pieces(model, batches, optimizer, device, rows, read=True)


def whole_batches(model, batches, optimizer, device, rows):
    return in_pieces(model, batches, optimizer, device, 10**6)


def short_piece_dropped(model, batches, optimizer, device, rows):
    full = [(x[: len(x) // rows * rows], y[: len(y) // rows * rows]) for x, y in batches]
    return in_pieces(model, full, optimizer, device, rows)


def summed_loss(model, batches, optimizer, device, rows):
    return in_pieces(model, batches, optimizer, device, rows) * sum(len(y) for _, y in batches)


def no_step(model, batches, optimizer, device, rows):
    optimizer.step = lambda: None
    return in_pieces(model, batches, optimizer, device, rows)


RIGHT = {
    "to_numpy": [
        four_words,
        clone_first,
        copied_by_numpy,
        copy_asked_of_to,
        by_force,
        gradients_off,
        made_zero_first,
    ],
    "keep_weights": [cloned, copied, through_a_file, copied_model],
    "migrate_training": [read_once, read_each_epoch, all_sent_before, one_reading_for_all],
    "quiet_evaluation": [read_in_one_go, three_readings, all_at_once, by_where_and_any],
    "choose_batch_size": [smallest_of_the_good, by_going_up, with_numpy],
    "accumulate_epoch": [sums, means_weighed, divided_before_the_step, equal_pieces],
}
WRONG = {
    "to_numpy": [
        (plain, "on the device"),
        (forgot_cpu, ".cpu()` comes before"),
        (forgot_detach, "leaves the graph"),
        (shares, "shares its memory"),
        (through_numbers, "dtype"),
        (still_a_tensor, "still a tensor"),
        (a_list, "not an array"),
        (detached_in_place, "without an underscore"),
        (switched_off, "took the graph away"),
        (flattened, "wrong shape"),
    ],
    "keep_weights": [
        (looks_like_a_copy, "On the CPU your kept weights change"),
        (the_dictionary, "still on the device"),
        (deep, "still on the device"),
        (only_parameters, "buffers are missing"),
        (with_graph, "graph"),
        (moved_the_model, "moved the model itself"),
        (arrays, "not a tensor"),
        (a_list_of_tensors, "not return a dictionary"),
    ],
    "migrate_training": [
        (left_on_the_cpu, "model stayed on the CPU"),
        (moved_back, "moved it back"),
        (trained_a_copy, "trained a copy"),
        (model_left_behind, "same device"),
        (labels_left_behind, "same device"),
        (floats_travel, "four times the bytes"),
        (float_labels, "expected"),
        (one_by_one, "one by one"),
        (labels_twice, "labels of a batch travel more than once"),
        (reads_each_step, "total += loss.item()"),
        (looks_each_step, "if labels.max() < 0"),
        (brings_back_each_step, "images.cpu()"),
        (tensors_kept, "are tensors"),
        (forgot_the_mean, "sums over the batches"),
        (not_scaled, "something besides the device"),
        (without_momentum, "something besides the device"),
        (nothing_returned, "returned None"),
        (one_loss_per_batch, "one loss for each batch"),
    ],
    "quiet_evaluation": [
        (as_given, "lines wait in the loop"),
        (gradients_left_on, "graph was recorded"),
        (mean_of_means, "mean of the batches' means"),
        (if_left, "an `if` has to know"),
        (pythons_max, "`max` compares"),
        (mask_left, "masked selection"),
        (number_left, "a number is read for each batch"),
        (tensors_returned, "only later"),
        (counted_not_shared, "a count"),
        (last_batch_only, "largest loss is not right"),
        (never_sure, "sure answers is not right"),
    ],
    "choose_batch_size": [
        (the_quickest, "not the smallest that is nearly as quick"),
        (memory_forgotten, "does not fit"),
        (strictly_smaller, "itself a size that fits"),
        (strictly_better, "takes it in"),
        (best_of_all, "no competitor"),
        (largest_good, "largest good batch"),
        (first_in_the_dictionary, "order of the dictionary"),
        (a_throughput, "a throughput"),
        (the_smallest, "too slow"),
        (never_measured, "never measured"),
    ],
    "accumulate_epoch": [
        (sent_whole, "first split"),
        (cleared("never"), "old gradients are still there"),
        (cleared("once"), "old gradients are still there"),
        (cleared("after"), "before the first batch"),
        (cleared("before", "piece"), "rows of a piece"),
        (cleared("before", "nothing"), "sum over the images"),
        (one_backward, "graphs of several pieces"),
        (not_weighed, "too large: each piece"),
        (by_pieces, "short piece counts as much"),
        (cleared_for_each_piece, "cleared for every piece"),
        (step_for_each_piece, "step for every piece"),
        (read_for_each_piece, "waits more than once"),
        (whole_batches, "too large for the memory"),
        (short_piece_dropped, "never reached the model"),
        (summed_loss, "is a sum"),
        (no_step, "nothing was learned"),
    ],
}
