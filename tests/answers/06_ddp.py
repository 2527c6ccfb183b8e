"""Right and wrong answers to the exercises of chapter 06."""

import os
import random
import shutil
import tempfile
import time

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler


# shard_indices -------------------------------------------------------------------------------------------------------
def dealt_like_cards(length, rank, world_size, epoch, seed):
    order = torch.randperm(length, generator=torch.Generator().manual_seed(seed + epoch))
    return order[rank::world_size]


def cut_in_pieces(length, rank, world_size, epoch, seed):
    order = list(range(length))
    random.Random(1000 * seed + epoch).shuffle(order)
    return order[length * rank // world_size : length * (rank + 1) // world_size]


def split_by_torch(length, rank, world_size, epoch, seed):
    generator = torch.Generator()
    generator.manual_seed(hash((seed, epoch)) % 2**31)
    return torch.randperm(length, generator=generator).tensor_split(world_size)[rank]


def shards_unshuffled(length, rank, world_size, epoch, seed):
    return torch.arange(rank, length, world_size)


def shards_without_epoch(length, rank, world_size, epoch, seed):
    return torch.randperm(length, generator=torch.Generator().manual_seed(seed))[rank::world_size]


def shards_without_seed(length, rank, world_size, epoch, seed):
    return torch.randperm(length, generator=torch.Generator().manual_seed(epoch))[rank::world_size]


def shards_seeded_by_rank(length, rank, world_size, epoch, seed):
    return torch.randperm(length, generator=torch.Generator().manual_seed(seed + epoch + 100 * rank))[rank::world_size]


def shards_from_global_numbers(length, rank, world_size, epoch, seed):
    return torch.randperm(length)[rank::world_size]


def shards_padded(length, rank, world_size, epoch, seed):
    sampler = DistributedSampler(range(length), num_replicas=world_size, rank=rank, seed=seed)
    sampler.set_epoch(epoch)
    return list(sampler)


def shards_cut_off(length, rank, world_size, epoch, seed):
    order = torch.randperm(length, generator=torch.Generator().manual_seed(seed + epoch))
    each = length // world_size
    return order[rank * each : (rank + 1) * each]


def shards_all_the_same(length, rank, world_size, epoch, seed):
    return torch.randperm(length, generator=torch.Generator().manual_seed(seed + epoch))


def shards_cut_then_shuffled(length, rank, world_size, epoch, seed):
    mine = torch.arange(rank, length, world_size)
    return mine[torch.randperm(len(mine), generator=torch.Generator().manual_seed(seed + epoch))]


def shards_uneven(length, rank, world_size, epoch, seed):
    order = torch.randperm(length, generator=torch.Generator().manual_seed(seed + epoch))
    each = length // world_size
    return order[rank * each :] if rank == world_size - 1 else order[rank * each : (rank + 1) * each]


def shards_turned(length, rank, world_size, epoch, seed):
    return torch.randperm(length, generator=torch.Generator().manual_seed(seed)).roll(epoch)[rank::world_size]


def shards_as_mask(length, rank, world_size, epoch, seed):
    order = torch.randperm(length, generator=torch.Generator().manual_seed(seed + epoch))
    return order % world_size == rank


def shards_by_process(length, rank, world_size, epoch, seed):
    order = torch.randperm(length, generator=torch.Generator().manual_seed(seed + epoch + os.getpid()))
    return order[rank::world_size]


# average_gradients ---------------------------------------------------------------------------------------------------
def one_by_one(model):
    for parameter in model.parameters():
        if not parameter.requires_grad:
            continue
        if parameter.grad is None:
            parameter.grad = torch.zeros_like(parameter)
        dist.all_reduce(parameter.grad)
        parameter.grad /= dist.get_world_size()


def average_by_pytorch(model):
    trainable = [p for p in model.parameters() if p.requires_grad]
    for p in trainable:
        if p.grad is None:
            p.grad = torch.zeros_like(p)
    for handle in [dist.all_reduce(p.grad, op=dist.ReduceOp.AVG, async_op=True) for p in trainable]:
        handle.wait()


def gathered(model):
    for p in model.parameters():
        if p.requires_grad:
            mine = torch.zeros_like(p) if p.grad is None else p.grad
            parts = [torch.zeros_like(p) for _ in range(dist.get_world_size())]
            dist.all_gather(parts, mine)
            p.grad = torch.stack(parts).mean(0)


def none_where_none_everywhere(model):
    for p in model.parameters():
        present = torch.tensor(float(p.grad is not None))
        dist.all_reduce(present)
        if present:
            gradient = torch.zeros_like(p) if p.grad is None else p.grad
            dist.all_reduce(gradient)
            p.grad = gradient / dist.get_world_size()


def _for_all(change):
    """An answer that fills in zeros where they are missing, and then makes one change to each gradient."""

    def answer(model):
        for p in model.parameters():
            if p.requires_grad:
                if p.grad is None:
                    p.grad = torch.zeros_like(p)
                change(p)

    answer.__name__ = change.__name__
    return answer


def summed(p):
    dist.all_reduce(p.grad)


def divided_twice(p):
    p.grad /= dist.get_world_size()
    dist.all_reduce(p.grad, op=dist.ReduceOp.AVG)


def divided_only(p):
    p.grad /= dist.get_world_size()


def broadcast_instead(p):
    dist.broadcast(p.grad, 0)


def reduced_to_one(p):
    dist.reduce(p.grad, 0)
    if dist.get_rank() == 0:
        p.grad /= dist.get_world_size()


def result_dropped(p):
    gradient = p.grad.clone()
    dist.all_reduce(gradient)
    gradient /= dist.get_world_size()


def weights_averaged(p):
    dist.all_reduce(p.data)


def none_skipped(model):
    for p in model.parameters():
        if p.grad is not None:
            dist.all_reduce(p.grad)
            p.grad /= dist.get_world_size()


def none_forgotten(model):
    for p in model.parameters():
        dist.all_reduce(p.grad)
        p.grad /= dist.get_world_size()


def none_sent_but_not_kept(model):
    for p in model.parameters():
        if p.requires_grad:
            gradient = torch.zeros_like(p) if p.grad is None else p.grad
            dist.all_reduce(gradient)
            gradient /= dist.get_world_size()


def frozen_filled(model):
    for p in model.parameters():
        if p.grad is None:
            p.grad = torch.zeros_like(p)
        dist.all_reduce(p.grad)
        p.grad /= dist.get_world_size()


def divided_by_those_present(model):
    for p in model.parameters():
        if p.requires_grad:
            present = torch.tensor(float(p.grad is not None))
            gradient = torch.zeros_like(p) if p.grad is None else p.grad
            dist.all_reduce(present)
            dist.all_reduce(gradient)
            p.grad = gradient / present.clamp(min=1)


def tied_twice(model):
    names = dict(model.named_parameters(remove_duplicate=False))
    trainable = [p for p in names.values() if p.requires_grad]
    for p in trainable:
        if p.grad is None:
            p.grad = torch.zeros_like(p)
        dist.all_reduce(p.grad)
    for p in model.parameters():
        if p.grad is not None:
            p.grad /= dist.get_world_size()


def only_rank_0_calls(model):
    if dist.get_rank() == 0:
        for p in model.parameters():
            if p.grad is not None:
                dist.all_reduce(p.grad)
                p.grad /= dist.get_world_size()


# exact_score ---------------------------------------------------------------------------------------------------------
def _counts(model, batches):
    model.eval()
    right = seen = 0
    with torch.no_grad():
        for x, y in batches:
            right += (model(x).argmax(dim=1) == y).sum().item()
            seen += len(y)
    return right, seen


def counts_added(model, batches):
    counts = torch.tensor(_counts(model, batches))
    dist.all_reduce(counts)
    return (counts[0] / counts[1]).item()


def objects_gathered(model, batches):
    everything = [None] * dist.get_world_size()
    dist.all_gather_object(everything, _counts(model, batches))
    return sum(right for right, _ in everything) / sum(seen for _, seen in everything)


def rank_0_tells(model, batches):
    right, seen = (torch.tensor(float(count)) for count in _counts(model, batches))
    dist.reduce(right, 0)
    dist.reduce(seen, 0)
    share = right / seen if dist.get_rank() == 0 else torch.zeros(())
    dist.broadcast(share, 0)
    return share


def own_score(model, batches):
    right, seen = _counts(model, batches)
    return right / max(seen, 1)


def mean_of_means(model, batches):
    right, seen = _counts(model, batches)
    share = torch.tensor(right / max(seen, 1))
    dist.all_reduce(share)
    return share.item() / dist.get_world_size()


def sum_of_means(model, batches):
    right, seen = _counts(model, batches)
    share = torch.tensor(right / max(seen, 1))
    dist.all_reduce(share)
    return share.item()


def mean_over_batches(model, batches):
    shares = torch.tensor([sum(_counts(model, [b])[0] / len(b[1]) for b in batches), float(len(batches))])
    dist.all_reduce(shares)
    return (shares[0] / shares[1]).item()


def means_of_batch_means(model, batches):
    shares = [_counts(model, [b])[0] / len(b[1]) for b in batches]
    share = torch.tensor(sum(shares) / max(len(shares), 1))
    dist.all_reduce(share)
    return share.item() / dist.get_world_size()


def divided_by_own(model, batches):
    right, seen = _counts(model, batches)
    right = torch.tensor(right)
    dist.all_reduce(right)
    return right.item() / max(seen, 1)


def divided_by_own_times_ranks(model, batches):
    return divided_by_own(model, batches) / dist.get_world_size()


def score_on_rank_0(model, batches):
    counts = torch.tensor(_counts(model, batches), dtype=torch.float32)
    dist.reduce(counts, 0)
    return (counts[0] / counts[1].clamp(min=1)).item()


def empty_shard_divides(model, batches):
    right, seen = _counts(model, batches)
    weighted = torch.tensor([right / seen * seen, seen])
    dist.all_reduce(weighted)
    return (weighted[0] / weighted[1]).item()


def stacked_answers(model, batches):
    model.eval()
    right = torch.cat([model(x).argmax(dim=1) == y for x, y in batches])
    counts = torch.tensor([right.sum(), len(right)])
    dist.all_reduce(counts)
    return (counts[0] / counts[1]).item()


def all_reduce_in_the_loop(model, batches):
    total = torch.zeros(2)
    for batch in batches:
        counts = torch.tensor(_counts(model, [batch]), dtype=torch.float32)
        dist.all_reduce(counts)
        total += counts
    return (total[0] / total[1]).item()


def score_in_train_mode(model, batches):
    counts = torch.zeros(2)
    with torch.no_grad():
        for x, y in batches:
            counts += torch.tensor([(model(x).argmax(1) == y).sum(), len(y)])
    dist.all_reduce(counts)
    return (counts[0] / counts[1]).item()


def score_in_percent(model, batches):
    return 100 * counts_added(model, batches)


def score_returned_on_rank_0(model, batches):
    share = counts_added(model, batches)
    if dist.get_rank() == 0:
        return share


# train_replicas ------------------------------------------------------------------------------------------------------
def _train(
    model,
    optimizer,
    train_set,
    epochs,
    batch_size,
    seed,
    *,
    wrap=DDP,
    sampler_seed=None,
    shuffle=True,
    set_epoch=True,
    from_zero=False,
    per_rank=True,
    factor=1.0,
    reduction="mean",
    unwrapped=False,
    zero=True,
    drop_last=False,
    everything=False,
    speaks=lambda: dist.get_rank() == 0,
):
    """The training of the solution, with a switch for each mistake."""
    replica = wrap(model)
    sampler = DistributedSampler(train_set, seed=seed if sampler_seed is None else sampler_seed, shuffle=shuffle)
    each = batch_size // dist.get_world_size() if per_rank else batch_size
    if everything:
        loader = DataLoader(train_set, each, shuffle=True)
    else:
        loader = DataLoader(train_set, each, sampler=sampler, drop_last=drop_last)
    for number, epoch in enumerate(epochs):
        if set_epoch:
            sampler.set_epoch(number if from_zero else epoch)
        for x, y in loader:
            loss = F.cross_entropy(model(x) if unwrapped else replica(x), y, reduction=reduction) * factor
            if zero:
                optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        if speaks():
            print(f"epoch {epoch}: loss {loss.item():.3f}")
    return replica


def _variant(name, **switches):
    def answer(model, optimizer, train_set, epochs, batch_size, seed):
        return _train(model, optimizer, train_set, epochs, batch_size, seed, **switches)

    answer.__name__ = name
    return answer


def with_ddp(model, optimizer, train_set, epochs, batch_size, seed):
    return _train(model, optimizer, train_set, epochs, batch_size, seed)


def all_by_hand(model, optimizer, train_set, epochs, batch_size, seed):
    rank, world = dist.get_rank(), dist.get_world_size()
    for tensor in model.state_dict().values():
        dist.broadcast(tensor, 0)
    for epoch in epochs:
        order = torch.randperm(len(train_set), generator=torch.Generator().manual_seed(seed + epoch))
        for rows in order[rank::world].split(batch_size // world):
            pairs = [train_set[i] for i in rows]
            x, y = torch.stack([x for x, _ in pairs]), torch.tensor([y for _, y in pairs])
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            one_by_one(model)
            optimizer.step()
        if rank == 0:
            print("epoch", epoch, "is over")
    return model


def learning_rate_scaled(model, optimizer, train_set, epochs, batch_size, seed):
    for group in optimizer.param_groups:
        group["lr"] *= dist.get_world_size()
    return with_ddp(model, optimizer, train_set, epochs, batch_size, seed)


def without_broadcast(model, optimizer, train_set, epochs, batch_size, seed):
    for parameter in model.parameters():
        parameter.register_post_accumulate_grad_hook(lambda p: dist.all_reduce(p.grad, op=dist.ReduceOp.AVG))
    return _train(model, optimizer, train_set, epochs, batch_size, seed, wrap=lambda model: model)


def halved_after_ddp(model, optimizer, train_set, epochs, batch_size, seed):
    return _train(model, optimizer, train_set, epochs, batch_size, seed, factor=1 / dist.get_world_size())


def one_step_less(model, optimizer, train_set, epochs, batch_size, seed):
    replica = DDP(model)
    sampler = DistributedSampler(train_set, seed=seed)
    for epoch in epochs:
        sampler.set_epoch(epoch)
        loader = list(DataLoader(train_set, batch_size // 2, sampler=sampler))
        for x, y in loader[dist.get_rank() :]:
            optimizer.zero_grad()
            F.cross_entropy(replica(x), y).backward()
            optimizer.step()
        if dist.get_rank() == 0:
            print(epoch)
    return replica


def no_model_returned(model, optimizer, train_set, epochs, batch_size, seed):
    _train(model, optimizer, train_set, epochs, batch_size, seed)


# save_from_main ------------------------------------------------------------------------------------------------------
def save(path, model, optimizer, epoch):
    if dist.get_rank() == 0:
        temporary = path.with_suffix(".tmp")
        state = {"model": model.module.state_dict(), "optimizer": optimizer.state_dict(), "epoch": epoch}
        torch.save(state, temporary)
        os.replace(temporary, path)
    dist.barrier()


def resume(path, model, optimizer, device):
    state = torch.load(path, map_location=device, weights_only=True)
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    return state["epoch"]


def save_with_file(path, model, optimizer, epoch):
    states = [getattr(model, "module", model).state_dict(), optimizer.state_dict(), torch.tensor(epoch)]
    if not dist.get_rank():
        with open(f"{path}.new", "wb") as file:
            torch.save(states, file)
        os.rename(f"{path}.new", path)
    dist.all_reduce(torch.zeros(1))


def resume_and_wait(path, model, optimizer, device):
    weights, state, epoch = torch.load(path, device)
    model.load_state_dict(weights)
    optimizer.load_state_dict(state)
    dist.barrier()
    return int(epoch)


def save_on_every_rank(path, model, optimizer, epoch):
    temporary = path.with_suffix(f".{dist.get_rank()}")
    torch.save({"model": model.module.state_dict(), "optimizer": optimizer.state_dict(), "epoch": epoch}, temporary)
    os.replace(temporary, path)
    dist.barrier()


def save_without_barrier(path, model, optimizer, epoch):
    if dist.get_rank() == 0:
        temporary = path.with_suffix(".tmp")
        state = {"model": model.module.state_dict(), "optimizer": optimizer.state_dict(), "epoch": epoch}
        torch.save(state, temporary)
        os.replace(temporary, path)


def save_after_barrier(path, model, optimizer, epoch):
    dist.barrier()
    save_without_barrier(path, model, optimizer, epoch)


def save_with_barrier_on_rank_0(path, model, optimizer, epoch):
    if dist.get_rank() == 0:
        save_without_barrier(path, model, optimizer, epoch)
        dist.barrier()


def save_in_place(path, model, optimizer, epoch):
    if dist.get_rank() == 0:
        torch.save({"model": model.module.state_dict(), "optimizer": optimizer.state_dict(), "epoch": epoch}, path)
    dist.barrier()


def save_elsewhere_first(path, model, optimizer, epoch):
    if dist.get_rank() == 0:
        temporary = os.path.join(tempfile.mkdtemp(), "training.tmp")
        state = {"model": model.module.state_dict(), "optimizer": optimizer.state_dict(), "epoch": epoch}
        torch.save(state, temporary)
        os.replace(temporary, path)
    dist.barrier()


def save_and_copy(path, model, optimizer, epoch):
    if dist.get_rank() == 0:
        temporary = path.with_suffix(".tmp")
        torch.save({"model": model.module.state_dict(), "optimizer": optimizer.state_dict(), "epoch": epoch}, temporary)
        shutil.copy(temporary, path)
        temporary.unlink()
    dist.barrier()


def save_after_deleting(path, model, optimizer, epoch):
    if dist.get_rank() == 0:
        temporary = path.with_suffix(".tmp")
        torch.save({"model": model.module.state_dict(), "optimizer": optimizer.state_dict(), "epoch": epoch}, temporary)
        path.unlink(missing_ok=True)
        temporary.rename(path)
    dist.barrier()


def save_and_wait_for_the_name(path, model, optimizer, epoch):
    save_without_barrier(path, model, optimizer, epoch)
    while not path.exists():
        time.sleep(0.01)


def save_and_leave(path, model, optimizer, epoch):
    save(path, model, optimizer, epoch)
    if dist.get_rank() == 0:
        path.with_suffix(".tmp").touch()
    dist.barrier()


def save_nothing(path, model, optimizer, epoch):
    dist.barrier()


def save_wrapped(path, model, optimizer, epoch):
    if dist.get_rank() == 0:
        temporary = path.with_suffix(".tmp")
        torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": epoch}, temporary)
        os.replace(temporary, path)
    dist.barrier()


def save_whole_model(path, model, optimizer, epoch):
    if dist.get_rank() == 0:
        temporary = path.with_suffix(".tmp")
        torch.save({"model": model.module, "optimizer": optimizer.state_dict(), "epoch": epoch}, temporary)
        os.replace(temporary, path)
    dist.barrier()


def resume_by_broadcast(path, model, optimizer, device):
    box = [torch.load(path, map_location=device) if dist.get_rank() == 0 else None]
    dist.broadcast_object_list(box, src=0)
    model.load_state_dict(box[0]["model"])
    optimizer.load_state_dict(box[0]["optimizer"])
    return box[0]["epoch"]


def resume_without_optimizer(path, model, optimizer, device):
    state = torch.load(path, map_location=device, weights_only=True)
    model.load_state_dict(state["model"])
    return state["epoch"]


def resume_without_map(path, model, optimizer, device):
    state = torch.load(path, weights_only=True)
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    return state["epoch"]


def resume_trusting(path, model, optimizer, device):
    state = torch.load(path, map_location=device, weights_only=False)
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    return state["epoch"]


def resume_on_rank_0(path, model, optimizer, device):
    if dist.get_rank() == 0:
        return resume(path, model, optimizer, device)
    return 0


def resume_without_position(path, model, optimizer, device):
    resume(path, model, optimizer, device)


def resume_one_later(path, model, optimizer, device):
    return resume(path, model, optimizer, device) + 1


def resume_forgets_model(path, model, optimizer, device):
    state = torch.load(path, map_location=device, weights_only=True)
    optimizer.load_state_dict(state["optimizer"])
    return state["epoch"]


# one_message ---------------------------------------------------------------------------------------------------------
def one_row(model):
    trainable = [p for p in model.parameters() if p.requires_grad]
    for p in trainable:
        if p.grad is None:
            p.grad = torch.zeros_like(p)
    row = torch.cat([p.grad.flatten() for p in trainable])
    dist.all_reduce(row)
    row /= dist.get_world_size()
    for p, part in zip(trainable, row.split([p.numel() for p in trainable]), strict=True):
        p.grad.copy_(part.view_as(p))


def views_of_one_row(model):
    trainable = [p for p in model.parameters() if p.requires_grad]
    row, start = torch.zeros(sum(p.numel() for p in trainable)), 0
    for p in trainable:
        view = row[start : start + p.numel()].view(p.shape)
        if p.grad is not None:
            view.copy_(p.grad)
        p.grad, start = view, start + p.numel()
    dist.all_reduce(row, op=dist.ReduceOp.AVG)


def _one_row(model, after, keep=True, missing=True, call=dist.all_reduce):
    trainable = [p for p in model.parameters() if p.requires_grad and (missing or p.grad is not None)]
    for p in trainable:
        if p.grad is None:
            p.grad = torch.zeros_like(p)
    row = torch.cat([p.grad.flatten() for p in trainable])
    call(row)
    row = after(row)
    if keep:
        for p, part in zip(trainable, row.split([p.numel() for p in trainable]), strict=True):
            p.grad.copy_(part.view_as(p))


def row_summed(model):
    _one_row(model, lambda row: row)


def row_divided_twice(model):
    _one_row(model, lambda row: row / dist.get_world_size() ** 2)


def row_not_copied_back(model):
    _one_row(model, lambda row: row / dist.get_world_size(), keep=False)


def row_without_missing(model):
    _one_row(model, lambda row: row / dist.get_world_size(), missing=False)


def row_mixed_up(model):
    _one_row(model, lambda row: row.flip(0) / dist.get_world_size())


def row_gathered(model):
    def gather(row):
        parts = [torch.zeros_like(row) for _ in range(dist.get_world_size())]
        dist.all_gather(parts, row.clone())
        row.copy_(torch.stack(parts).mean(0))

    _one_row(model, lambda row: row, call=gather)


def row_after_a_barrier(model):
    dist.barrier()
    one_row(model)


RIGHT = {
    "shard_indices": [dealt_like_cards, cut_in_pieces, split_by_torch],
    "average_gradients": [one_by_one, average_by_pytorch, gathered, none_where_none_everywhere],
    "exact_score": [counts_added, objects_gathered, rank_0_tells],
    "train_replicas": [with_ddp, all_by_hand],
    "save_from_main": [(save, resume), (save_with_file, resume_and_wait), (save, resume_by_broadcast)],
    "one_message": [one_row, views_of_one_row],
}

WRONG = {
    "shard_indices": [
        (shards_unshuffled, "nothing is shuffled"),
        (shards_without_epoch, "every epoch has the same order"),
        (shards_without_seed, "another seed gives the same order"),
        (shards_seeded_by_rank, "did not shuffle alike"),
        (shards_from_global_numbers, "did not shuffle alike"),
        (shards_padded, "the tail is padded"),
        (shards_cut_off, "the tail is lost"),
        (shards_all_the_same, "every rank gets all the indices"),
        (shards_cut_then_shuffled, "only in another order"),
        (shards_uneven, "very different lengths"),
        (shards_by_process, "do not share"),
        (shards_turned, "only turned"),
        (shards_as_mask, "a mask"),
    ],
    "average_gradients": [
        (_for_all(summed), "the sum over the ranks"),
        (_for_all(divided_twice), "divided twice"),
        (_for_all(divided_only), "exchanged nothing"),
        (_for_all(broadcast_instead), "the gradients of rank 0"),
        (_for_all(reduced_to_one), "only rank 0 has the mean"),
        (_for_all(result_dropped), "afterwards what they were"),
        (_for_all(weights_averaged), "changed the weights"),
        (none_skipped, "a deadlock"),
        (none_skipped, "has no gradient for `branch.weight`"),
        (none_forgotten, "a gradient may be none"),
        (none_sent_but_not_kept, "still has no gradient"),
        (frozen_filled, "is frozen and now has a gradient"),
        (divided_by_those_present, "has to count as zeros"),
        (tied_twice, "counted twice"),
        (only_rank_0_calls, "rank 1 has already left your function"),
    ],
    "exact_score": [
        (own_score, "of its own samples"),
        (mean_of_means, "mean of the ranks' accuracies"),
        (sum_of_means, "sum of the ranks' accuracies"),
        (mean_over_batches, "mean over all batches"),
        (means_of_batch_means, "mean of means of means"),
        (divided_by_own, "divided by the samples of one"),
        (divided_by_own_times_ranks, "as many samples as yours"),
        (score_on_rank_0, "only rank 0"),
        (empty_shard_divides, "without any batch divides by zero"),
        (stacked_answers, "without any batch stumbles"),
        (all_reduce_in_the_loop, "may not stand in the loop"),
        (all_reduce_in_the_loop, "rank 0 waits for rank 1"),
        (score_in_train_mode, "train mode"),
        (score_in_percent, "in percent"),
        (score_returned_on_rank_0, "returned None"),
    ],
    "train_replicas": [
        (_variant("no_set_epoch", set_epoch=False), "`sampler.set_epoch(epoch)`"),
        (_variant("counted_from_zero", from_zero=True), "you count the epochs from 0"),
        (_variant("unshuffled", shuffle=False), "unshuffled"),
        (_variant("seed_forgotten", sampler_seed=0), "does not depend on `seed`"),
        (_variant("batch_not_divided", per_rank=False), "divided by the number of ranks"),
        (learning_rate_scaled, "nothing to scale"),
        (halved_after_ddp, "divided twice"),
        (_variant("never_cleared", zero=False), "gradients of earlier batches"),
        (_variant("loss_summed", reduction="sum"), "the sum over the samples"),
        (_variant("last_batch_dropped", drop_last=True), "the last, shorter batch"),
        (_variant("not_wrapped", wrap=lambda model: model), "exchanged nothing"),
        (_variant("wrapper_not_called", unwrapped=True), "call the wrapped model"),
        (without_broadcast, "different initial weights"),
        (_variant("no_sampler", everything=True), "`DataLoader(…, sampler=DistributedSampler(…))`"),
        (one_step_less, "a deadlock"),
        (_variant("all_print", speaks=lambda: True), "rank 1 prints too"),
        (_variant("silent", speaks=lambda: False), "does not report"),
        (no_model_returned, "returns no model"),
    ],
    "save_from_main": [
        ((save_on_every_rank, resume), "every rank saves"),
        ((save_without_barrier, resume), "rank 1 did not wait"),
        ((save_after_barrier, resume), "rank 1 did not wait"),
        ((save_with_barrier_on_rank_0, resume), "rank 0 waits for rank 1 in a barrier"),
        ((save_in_place, resume), "written in place"),
        ((save_elsewhere_first, resume), "another folder"),
        ((save_and_leave, resume), "left behind"),
        ((save_nothing, resume), "no new file"),
        ((save_and_copy, resume), "written in place"),
        ((save_after_deleting, resume), "is deleted before"),
        ((save_and_wait_for_the_name, resume), "rank 1 did not wait"),
        ((save_wrapped, resume), "begins with `module.`"),
        ((save_whole_model, resume), "whole objects"),
        ((save, resume_without_optimizer), "momentum is lost"),
        ((save, resume_without_map), "map_location"),
        ((save, resume_trusting), "any code"),
        ((save, resume_on_rank_0), "only rank 0 has the saved weights"),
        ((save, resume_without_position), "where to go on"),
        ((save, resume_one_later), "the epoch that `resume` returns"),
        ((save, resume_forgets_model), "does not have the saved weights"),
    ],
    "one_message": [
        (one_by_one, "collectives"),
        (row_after_a_barrier, "took 2 collectives"),
        (row_summed, "the sum over the ranks"),
        (row_divided_twice, "divided twice"),
        (row_not_copied_back, "afterwards what they were"),
        (row_without_missing, "with different tensors"),
        (row_mixed_up, "wrong places"),
        (row_gathered, "many times the data"),
    ],
}
