"""The loop: it does what chapter 02 writes out, counts by images, and leaves nothing behind."""

import copy
import functools
import gc
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
    layers = [nn.Linear(16, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(dropout), nn.Linear(8, 3)]
    return nn.Sequential(nn.Flatten(), *layers)


def images(n: int, seed: int = 0) -> ImageSet:
    """A tiny set that can be learned: the class is the row that is bright."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(3, (n,), generator=generator)
    pixels = torch.randint(100, (n, 1, 4, 4), generator=generator, dtype=torch.uint8)
    pixels[torch.arange(n), 0, labels] += 150
    return ImageSet(images=pixels, labels=labels, classes=("a", "b", "c"), name="tiny", origin="synthetic")


def scale(pixels: torch.Tensor) -> torch.Tensor:
    return pixels.float() / 255


quiet = functools.partial(fit, prepare=scale, verbose=False)


def sgd(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)


def state(model: nn.Module) -> dict[str, torch.Tensor]:
    return {name: value.clone() for name, value in model.state_dict().items()}


def equal(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> bool:
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


def test_fit_equals_the_loop_written_out_bit_for_bit():
    by_hand, model = network(), network().eval()
    optimizer = sgd(by_hand)
    batches = loader(images(50), 16, shuffle=True, seed=3)
    for _ in range(3):
        by_hand.train()
        for x, y in batches:
            optimizer.zero_grad()
            F.cross_entropy(by_hand(scale(x)), y).backward()
            optimizer.step()

    batches = loader(images(50), 16, shuffle=True, seed=3)
    quiet(model, batches, sgd(model), epochs=3, validation=loader(images(20, seed=1), 7))
    assert equal(state(by_hand), state(model))


def test_dtype_is_what_the_model_computes_in():
    seen, model, plain = [], network(), network()
    model[1].register_forward_hook(lambda module, inputs, output: seen.append(output.dtype))
    batches = loader(images(8), 8)
    for dtype in (torch.bfloat16, torch.float32, None):
        quiet(model, batches, sgd(model), validation=batches, dtype=dtype)
        evaluate(model, batches, prepare=scale, dtype=dtype)
    assert seen == [torch.bfloat16] * 3 + [torch.float32] * 6
    assert all(parameter.dtype == torch.float32 for parameter in model.parameters())
    model = network()
    quiet(plain, batches, sgd(plain))
    quiet(model, batches, sgd(model), dtype=torch.float32)
    assert equal(state(plain), state(model)), "float32 changes nothing"


class Clock:
    """Time that only passes where the test lets it: `loss()` takes 10 ms, or `half` of that in bfloat16."""

    def __init__(self, monkeypatch, half):
        self.now, self.half = 0.0, half
        monkeypatch.setattr(device.time, "perf_counter", lambda: self.now)

    def loss(self):
        in_half = torch.is_autocast_enabled("cpu")
        if in_half and self.half is None:
            raise RuntimeError("no such type")
        self.now += 0.01 * (self.half if in_half else 1.0)
        return torch.zeros((), requires_grad=True)


def test_the_faster_dtype_wins_clearly(monkeypatch):
    """Twice as fast; hardly faster, which is not worth fewer digits; emulated; missing."""
    for half, expected in ((0.5, torch.bfloat16), (0.95, torch.float32), (30.0, torch.float32), (None, torch.float32)):
        clock = Clock(monkeypatch, half)
        assert device.faster_dtype(clock.loss, torch.device("cpu")) == expected
        assert clock.now < 1.0  # where bfloat16 is hopeless, it is not tried again and again


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


def test_fit_tries_the_model_at_hand(monkeypatch):
    """It takes what is faster for this model, and the trial leaves no trace: same weights as with the dtype given."""
    asked = []

    def faster(loss, where):
        loss().backward()
        torch.rand(5)
        asked.append(where.type)
        return torch.bfloat16

    monkeypatch.setattr(device, "faster_dtype", faster)
    monkeypatch.setattr(training, "_faster", {})
    weights = []
    for dtype in ("fast", torch.bfloat16, "fast"):
        model = nn.Sequential(network(dropout=0.5), nn.BatchNorm1d(3))
        batches = loader(images(100), 32, shuffle=True, seed=0)
        quiet(model, batches, sgd(model), 2, dtype=dtype)
        weights.append(state(model))
    assert equal(weights[0], weights[1]) and equal(weights[0], weights[2])
    assert asked == ["cpu"]  # once for this architecture and batch


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
        score = quiet(model, batches, frozen)[0].training
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
    history = quiet(model, batches, sgd(model), 2, validation=batches)
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
    history = quiet(model, loader(images(20), 5), sgd(model))
    assert history[0].validation is None and capsys.readouterr().out == ""


def test_no_batches_is_said_in_a_sentence():
    model = network()
    used_up = iter([(torch.zeros(4, 1, 4, 4), torch.zeros(4, dtype=torch.int64))])
    with pytest.raises(CourseError, match="no batch"):
        evaluate(model, [])
    with pytest.raises(CourseError, match="no batch"):
        fit(model, used_up, sgd(model), 2, verbose=False)
