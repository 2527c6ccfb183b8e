"""The loop: it does what chapter 02 writes out, counts by images, and leaves nothing behind."""

import copy
import gc
import warnings
import weakref

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from torchcourse import CourseError, device, training
from torchcourse.data import ImageSet, loader
from torchcourse.training import Score, evaluate, fit


def network(seed: int = 0, dropout: float = 0.0) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(
        nn.Flatten(), nn.Linear(16, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(dropout), nn.Linear(8, 3)
    )


def images(n: int, seed: int = 0) -> ImageSet:
    """A tiny set that can be learned: the class is the row that is bright."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(3, (n,), generator=generator)
    pixels = torch.randint(100, (n, 1, 4, 4), generator=generator, dtype=torch.uint8)
    pixels[torch.arange(n), 0, labels] += 150
    return ImageSet(images=pixels, labels=labels, classes=("a", "b", "c"), name="tiny", origin="drawn")


def scale(pixels: torch.Tensor) -> torch.Tensor:
    return pixels.float() / 255


def sgd(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)


def state(model: nn.Module) -> dict[str, torch.Tensor]:
    return {name: value.clone() for name, value in model.state_dict().items()}


def equal(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> bool:
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


def test_fit_equals_the_loop_written_out_bit_for_bit():
    by_hand, model = network(), network()
    optimizer = sgd(by_hand)
    batches = loader(images(50), 16, shuffle=True, seed=3)
    for _ in range(3):
        by_hand.train()
        for x, y in batches:
            optimizer.zero_grad()
            F.cross_entropy(by_hand(scale(x)), y).backward()
            optimizer.step()

    fit(
        model, loader(images(50), 16, shuffle=True, seed=3), sgd(model), epochs=3, prepare=scale,
        validation=loader(images(20, seed=1), 7), verbose=False,
    )  # fmt: skip
    assert equal(state(by_hand), state(model))


def test_dtype_is_what_the_model_computes_in():
    seen, model, plain = [], network(), network()
    model[1].register_forward_hook(lambda module, inputs, output: seen.append(output.dtype))
    batches = loader(images(8), 8)
    for dtype in (torch.bfloat16, torch.float32, None):
        options = {"prepare": scale, "dtype": dtype}
        fit(model, batches, sgd(model), validation=batches, verbose=False, **options)
        evaluate(model, batches, **options)
    assert seen == [torch.bfloat16] * 3 + [torch.float32] * 6
    assert all(parameter.dtype == torch.float32 for parameter in model.parameters())
    model = network()
    for trained, options in ((plain, {}), (model, {"dtype": torch.float32})):
        fit(trained, loader(images(30), 8), sgd(trained), prepare=scale, verbose=False, **options)
    assert equal(state(plain), state(model)), "float32 changes nothing"


class Clock:
    """Time that only passes where the test lets it: `loss()` takes `full` seconds, or `half` of that in bfloat16."""

    def __init__(self, monkeypatch, half, full=0.01):
        self.now, self.half, self.full, self.calls = 0.0, half, full, 0
        monkeypatch.setattr(device.time, "perf_counter", lambda: self.now)

    def loss(self):
        self.calls += 1
        in_half = torch.is_autocast_enabled("cpu")
        if in_half and self.half is None:
            raise RuntimeError("no such type")
        self.now += self.full * (self.half if in_half else 1.0)
        return torch.zeros((), requires_grad=True)


def test_the_faster_dtype_wins_clearly(monkeypatch):
    """Twice as fast; hardly faster, which is not worth fewer digits; emulated; missing."""
    for half, expected in ((0.5, torch.bfloat16), (0.95, torch.float32), (30.0, torch.float32), (None, torch.float32)):
        clock = Clock(monkeypatch, half)
        assert device.faster_dtype(clock.loss, torch.device("cpu")) == expected
        assert clock.now < 1.0  # where bfloat16 is hopeless, it is not tried again and again


def test_a_gpu_is_waited_for_after_many_short_steps(monkeypatch):
    """A synchronization takes longer than a small step: after each one, it would be what is measured."""
    waits = []
    monkeypatch.setattr(torch.accelerator, "synchronize", lambda where: waits.append(where))
    clock = Clock(monkeypatch, 1.0, full=0.0002)
    with warnings.catch_warnings(action="ignore"):  # there may be no GPU: then autocast warns, and both are one
        device.faster_dtype(clock.loss, torch.device("cuda"))
    assert clock.calls > 50 * len(waits) > 0


def test_fast_dtype_is_measured_once_and_leaves_random_numbers_alone(monkeypatch):
    monkeypatch.setattr(device, "best", lambda: torch.device("cpu"))  # also with a GPU, be it the practice GPU
    device._fast_dtype.cache_clear()
    torch.manual_seed(0)
    expected = torch.rand(3)
    torch.manual_seed(0)
    assert device.fast_dtype() in (torch.float32, torch.bfloat16)
    assert torch.equal(torch.rand(3), expected)
    monkeypatch.setattr(device, "_convolution", lambda where: pytest.fail("measured again"))
    assert device.fast_dtype("cpu") == device.fast_dtype(torch.device("cpu"))
    device._fast_dtype.cache_clear()


@pytest.mark.parametrize("chosen", [torch.float32, torch.bfloat16])
def test_fit_tries_the_model_at_hand(monkeypatch, chosen):
    """It takes what is faster for this model, and the trial leaves no trace: same weights as with the dtype given."""
    asked = []

    def faster(loss, where):
        loss().backward()
        torch.rand(5)
        asked.append(where.type)
        return chosen

    monkeypatch.setattr(device, "faster_dtype", faster)
    monkeypatch.setattr(training, "_faster", {})
    weights = []
    for dtype in ("fast", chosen, "fast"):
        torch.manual_seed(0)
        model = nn.Sequential(network(dropout=0.5), nn.BatchNorm1d(3))
        batches = loader(images(100), 32, shuffle=True, seed=0)
        fit(model, batches, sgd(model), 2, prepare=scale, dtype=dtype, verbose=False)
        weights.append(torch.cat([value.flatten() for value in model.state_dict().values()]))
    assert torch.equal(weights[0], weights[1]) and torch.equal(weights[0], weights[2])
    assert asked == ["cpu"]  # once for this architecture and batch


@pytest.mark.parametrize("dtype", [None, torch.bfloat16])
def test_fit_learns(dtype):
    model = network()
    history = fit(
        model, loader(images(300), 32, shuffle=True, seed=0), sgd(model), 5, prepare=scale,
        validation=loader(images(100, seed=1), 30), dtype=dtype, verbose=False,
    )  # fmt: skip
    assert history[-1].validation.accuracy > 0.9
    assert history[-1].training.loss < history[0].training.loss


@pytest.mark.parametrize("training", [True, False])
def test_scores_count_images_and_not_batches(training):
    """A batch of 20 and one of 2: the mean of the two batches' means is another number."""
    model, batches = network(), loader(images(22), 20)
    copied = copy.deepcopy(model).train(training)
    outputs = [(copied(scale(x)), y) for x, y in batches]
    (first, second), right = [F.cross_entropy(*each).item() for each in outputs], [x.argmax(1) == y for x, y in outputs]
    expected = [(20 * first + 2 * second) / 22, torch.cat(right).float().mean().item()]
    assert abs((first + second) / 2 - expected[0]) > 1e-3  # without it this test could not fail
    if training:
        frozen = torch.optim.SGD(model.parameters(), lr=0.0)
        score = fit(model, batches, frozen, prepare=scale, verbose=False)[0].training
    else:
        score = evaluate(model, batches, prepare=scale)
    assert [score.loss, score.accuracy] == pytest.approx(expected, rel=1e-5)


def test_evaluate_uses_eval_mode_and_changes_nothing():
    model = network(dropout=0.5)
    model[2].eval()  # as in fine-tuning: one layer is frozen in eval mode, the rest is in train mode
    before, modes = state(model), [module.training for module in model.modules()]
    scores = {evaluate(model, loader(images(30), 10), prepare=scale) for _ in range(3)}
    with pytest.raises(RuntimeError):
        evaluate(model, [(torch.zeros(2, 1, 5, 5), torch.zeros(2, dtype=torch.int64))])
    assert len(scores) == 1  # with dropout at work the three would differ
    assert equal(before, state(model))  # batch norm's running statistics did not move
    assert [module.training for module in model.modules()] == modes


def test_fit_trains_in_train_mode_in_every_epoch():
    seen = []
    model = network().eval()
    model[4].register_forward_hook(
        lambda module, inputs, output: seen.append((module.training, torch.is_grad_enabled()))
    )
    fit(model, loader(images(8), 8), sgd(model), 2, prepare=scale, validation=loader(images(8), 8), verbose=False)
    assert seen == [(True, True), (False, False)] * 2


def test_no_graph_is_kept():
    alive = []

    class Tag:  # hangs on a node of the graph and lives as long as it does
        def __call__(self, gradient):
            return None

    def watch(module, inputs, output):
        if output.requires_grad:
            tag = Tag()
            output.register_hook(tag)
            alive.append(weakref.ref(tag))

    model = nn.Sequential(nn.Flatten(), nn.Linear(16, 3))
    model[1].register_forward_hook(watch)
    batches = loader(images(20), 5)
    history = fit(model, batches, sgd(model), 2, prepare=scale, validation=batches, verbose=False)
    gc.collect()
    assert len(alive) == 8  # evaluation recorded nothing
    assert not any(reference() for reference in alive)
    assert all(type(epoch.training.loss) is float for epoch in history)


def test_history_and_printed_lines(capsys):
    model = network()
    optimizer = sgd(model)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 / (1 + step))  # moves after every batch
    options = {"prepare": scale, "scheduler": scheduler}
    history = fit(model, loader(images(20), 5), optimizer, 2, validation=loader(images(8), 8), **options)
    lines = capsys.readouterr().out.splitlines()
    assert [epoch.number for epoch in history] == [1, 2] and isinstance(history[0].validation, Score)
    assert [epoch.learning_rate for epoch in history] == pytest.approx([0.1, 0.1 / 5])
    assert len(lines) == 2 and "epoch 2" in lines[1] and "validation" in lines[1]
    history = fit(model, loader(images(20), 5), sgd(model), prepare=scale, verbose=False)
    assert history[0].validation is None and capsys.readouterr().out == ""


def test_other_losses_and_plain_lists_of_batches():
    model, x, y = nn.Linear(4, 2), torch.randn(6, 4), torch.tensor([0, 1, 0, 1, 0, 1])

    def squared(logits, labels):
        return F.mse_loss(logits, F.one_hot(labels, 2).float())

    score = evaluate(model, [(x[:4], y[:4]), (x[4:], y[4:])], loss_fn=squared)
    assert score.loss == pytest.approx(squared(model(x), y).item(), rel=1e-5)


def test_no_batches_is_said_in_a_sentence():
    model = network()
    with pytest.raises(CourseError, match="no batch"):
        evaluate(model, [])
    used_up = iter([(torch.zeros(4, 1, 4, 4), torch.zeros(4, dtype=torch.int64))])
    with pytest.raises(CourseError, match="no batch"):
        fit(model, used_up, sgd(model), 2, verbose=False)
