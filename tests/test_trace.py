"""The trace counts the same on the practice GPU and on a real one, and names the line that caused each event."""

import linecache

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from torchcourse import simgpu
from torchcourse.trace import KERNEL, SYNCHRONIZE, TO_DEVICE, Cost, Event, trace

pytestmark = pytest.mark.gpu


@pytest.fixture(scope="module")
def gpu() -> torch.device:
    return simgpu.accelerator()  # the real one, where there is one


def counts(t) -> tuple[int, int, int]:
    return len(t.to_device), len(t.to_host), len(t.syncs)


def test_nothing_is_recorded_for_the_cpu_and_for_meta():
    with trace() as t:
        x = torch.randn(3, 3)
        print((x @ x).sum().item(), x.numpy(), x)
        torch.zeros(3, device="meta").add_(1)
    assert t.events == [] and t.seconds() == 0 and t.by_line() == []


# What the line does -> copies to the device, copies to the host, synchronizations.
LINES = {
    "x.to(gpu)": (1, 0, 0),
    "x.pin_memory().to(gpu, non_blocking=True)": (1, 0, 0),
    "torch.tensor([1.0, 2.0], device=gpu)": (1, 0, 0),
    "torch.zeros(3, device=gpu)": (0, 0, 0),
    "y.to(gpu)": (0, 0, 0),
    "y.cpu()": (0, 1, 1),
    "y.tolist()": (0, 1, 1),
    "y.to('cpu', non_blocking=True)": (0, 1, 0),
    "x.copy_(y)": (0, 1, 1),
    "y.copy_(x)": (1, 0, 0),
    "y.sum().item()": (0, 0, 1),
    "float(y.sum())": (0, 0, 1),
    "bool((y > 0).all())": (0, 0, 1),
    "f'{y.sum():.2f}'": (0, 0, 1),
    "print(y)": (0, 0, 1),
    "torch.tensor([y[0, 0], y[0, 1]])": (0, 0, 2),
    "torch.stack([y[0, 0], y[0, 1]]).tolist()": (0, 1, 1),
    "torch.tensor([y[0, 0], 1.0], device=gpu)": (1, 0, 1),
    "y.numpy(force=True)": (0, 1, 1),
    "max(y.sum(1))": (0, 0, 3),
    "torch.nn.functional.one_hot(labels, 3)": (0, 0, 0),
    "torch.nn.BatchNorm2d(3).to(gpu)": (5, 0, 0),
    "y.__setitem__(y > 0, 1.0)": (0, 0, 0),
    "y[[0, 1]]": (1, 0, 0),
    "y.nonzero()": (0, 0, 1),
    "y[y > 0]": (0, 0, 1),
    "torch.equal(y, y)": (0, 0, 1),
    "torch.accelerator.synchronize()": (0, 0, 1),
    "getattr(torch, gpu.type).synchronize()": (0, 0, 1),
    "y.mean(0).view(-1).t()": (0, 0, 0),
    "torch.nn.utils.clip_grad_norm_([p], 1.0)": (0, 0, 0),
    "torch.nn.functional.cross_entropy(y, labels)": (0, 0, 0),
}


def test_what_a_line_causes(gpu):
    for line, expected in LINES.items():
        x, y, labels = torch.ones(4, 3), torch.rand(4, 3, device=gpu), torch.tensor([0, 1, 2, 0], device=gpu)
        p = nn.Parameter(torch.ones(3, device=gpu))
        p.grad = torch.ones(3, device=gpu)
        names = {"x": x, "y": y, "labels": labels, "p": p, "gpu": gpu, "torch": torch}
        with trace() as t:
            eval(line, names)
        assert counts(t) == expected, (line, t.events)


def test_bytes_and_operations(gpu):
    x, y = torch.ones(4, 3), torch.ones(4, 3, device=gpu)
    with trace() as t:
        x.to(gpu)
        x.to(gpu, torch.float64)
        y.cpu()
        y + y
    assert [event.bytes for event in t.to_device] == [48, 96]
    assert [event.bytes for event in t.to_host] == [48]
    assert [event.bytes for event in t.kernels] == [96]
    with trace() as t:
        y @ torch.ones(3, 5, device=gpu)
        F.conv2d(torch.ones(1, 2, 5, 5, device=gpu), torch.ones(3, 2, 3, 3, device=gpu))
    assert [event.flops for event in t.kernels if event.flops] == [2 * 4 * 3 * 5, 2 * 9 * 3 * 2 * 9]


def test_each_event_knows_its_line(gpu):
    class Net(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x * 2 + 1

    x = torch.ones(4, 3)
    with trace() as t:
        y = x.to(gpu)  # the first line
        z = y * 2
        z.sum().item()
        z.flatten()
    lines = ["y = x.to(gpu)  # the first line", "z = y * 2", "z.sum().item()", "z.sum().item()"]
    assert [event.line for event in t.events] == lines
    first = t.events[0].number
    assert [event.number - first for event in t.events] == [0, 1, 2, 2] and t.events[0].file == __file__
    rows = t.by_line()
    found = [(row.to_device, row.to_host, row.syncs, row.kernels) for row in rows]
    assert found == [(1, 0, 0, 0), (0, 0, 0, 1), (0, 0, 1, 1)] and rows[0].bytes == 48
    with trace() as t:
        Net()(torch.ones(3, device=gpu))
    assert "return x * 2 + 1" in [row.line for row in t.by_line()]


def test_a_cell_of_a_notebook(gpu):
    """IPython hands the text of a cell to linecache under the name it compiles it with."""
    name, lines = "<ipython-input-7-abcdef>", ["with trace() as t:\n", "    y = x.to(gpu)\n", "    y.sum().item()\n"]
    linecache.cache[name] = (len("".join(lines)), None, lines, name)
    names = {"trace": trace, "x": torch.ones(3), "gpu": gpu}
    exec(compile("".join(lines), name, "exec"), names)
    assert [(e.number, e.line) for e in names["t"].syncs] == [(3, "y.sum().item()")]
    assert [(e.number, e.line) for e in names["t"].to_device] == [(2, "y = x.to(gpu)")]


@pytest.mark.parametrize("optimizer_class", [torch.optim.SGD, torch.optim.AdamW])
def test_the_backward_pass_and_the_optimizer_are_counted(gpu, optimizer_class):
    model = nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(16, 5)).to(gpu)
    optimizer = optimizer_class(model.parameters(), lr=0.1)
    x, y = torch.randn(2, 1, 4, 4, device=gpu), torch.tensor([0, 1], device=gpu)
    with trace() as t:
        loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    kernels = {row.line: row.kernels for row in t.by_line()}
    assert kernels["loss.backward()"] >= 6 and kernels["optimizer.step()"] >= 1
    assert any(event.op == "convolution_backward" for event in t.kernels)
    assert counts(t) == (0, 0, 0)


def test_the_trace_ends_with_its_block_and_may_hold_another(gpu):
    before = torch.accelerator.synchronize, torch._tensor_str._str, torch.tensor
    with pytest.raises(ValueError, match="stop"), trace() as outer:
        torch.ones(2, device=gpu)
        with trace() as inner:
            repr(torch.ones(2, device=gpu))
            torch.accelerator.synchronize()
        raise ValueError("stop")
    torch.ones(2, device=gpu)
    assert (len(inner.kernels), len(inner.syncs)) == (1, 2)
    assert (len(outer.kernels), len(outer.syncs)) == (2, 2)
    assert before == (torch.accelerator.synchronize, torch._tensor_str._str, torch.tensor)


# ----------------------------------------------------------------------------------------------------- model of cost

ROUND = Cost(launch=1.0, kernel=2.0, copy=10.0, pageable=1.0, pinned=10.0, throughput=1.0, bandwidth=1.0)


def spans(*events: Event) -> list[tuple]:
    return [(span.row, span.start, span.end, span.kind) for span in ROUND.schedule(list(events))]


def test_kernels_run_while_the_cpu_goes_on_until_it_waits():
    one, another = Event(KERNEL, "add"), Event(KERNEL, "add")
    assert spans(one, another) == [
        ("CPU", 0, 1, KERNEL),
        ("GPU", 1, 3, KERNEL),
        ("CPU", 1, 2, KERNEL),
        ("GPU", 3, 5, KERNEL),
    ]
    found = spans(one, Event(SYNCHRONIZE, "synchronize", waits=True), another)
    assert found[2] == ("CPU", 1, 3, "wait") and found[-1] == ("GPU", 4, 6, KERNEL)
    assert spans(one, Event(SYNCHRONIZE, "item", bytes=4, waits=True))[-1] == ("CPU", 1, 13, "wait")


def test_pageable_copies_wait_and_pinned_ones_need_not():
    asked = ("CPU", 0, 1, TO_DEVICE)
    pageable, pinned = Event(TO_DEVICE, "to", bytes=5, waits=True), Event(TO_DEVICE, "to", bytes=5, pinned=True)
    assert spans(pageable) == [asked, ("copies", 1, 16, TO_DEVICE), ("CPU", 1, 16, "wait")]
    assert spans(pinned) == [asked, ("copies", 1, 11.5, TO_DEVICE)]


def test_the_cost_of_what_the_course_warns_of(gpu):
    assert ROUND.duration(Event(KERNEL, "mm", bytes=7, flops=9)) == 9, "large kernels take what bounds them"
    assert ROUND.duration(Event(KERNEL, "add", bytes=7)) == 7
    images, x = torch.randn(64, 1, 28, 28), torch.randn(64, 64, device=gpu)
    with trace() as one_by_one:
        torch.stack([image.to(gpu) for image in images])
    with trace() as at_once:
        images.to(gpu)
    assert counts(one_by_one) == (64, 0, 0) and counts(at_once) == (1, 0, 0)
    assert one_by_one.seconds() > 10 * at_once.seconds()

    def steps(read: bool) -> float:
        with trace() as t:
            for _ in range(5):
                total = (x @ x).relu().exp().sum()
                if read:
                    total.item()
        return t.seconds()

    assert steps(read=True) > 1.2 * steps(read=False)  # the copy of the number, and the queue runs empty
