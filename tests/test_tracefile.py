"""Traces of torch.profiler: read as they are written, summed without counting anything twice, drawn."""

import gzip
import json
import os
import warnings

import pytest
import torch
from torch.profiler import ProfilerActivity, profile, record_function, schedule

from torchcourse.lectures import tracefile
from torchcourse.lectures.tracefile import Span


def test_a_real_trace_holds_what_ran_and_what_was_named(tmp_path):
    path = tmp_path / "trace.json"
    with tracefile.quiet(), profile(activities=[ProfilerActivity.CPU]) as profiler, record_function("my product"):
        torch.ones(64, 64) @ torch.ones(64, 64)
    profiler.export_chrome_trace(str(path))
    spans = tracefile.read(path)
    (mine,) = (span for span in spans if span.name == "my product")
    assert mine.category == tracefile.YOURS
    (product,) = (span for span in spans if span.name == "aten::mm")
    assert mine.start <= product.start < product.end <= mine.end
    assert min(span.start for span in spans) == 0
    figure = tracefile.draw(spans)
    assert [label.get_text() for label in figure.axes[0].get_yticklabels()] == ["operations", "your ranges"]


def test_events_without_a_duration_are_left_out_and_packed_files_are_read(tmp_path):
    path = tmp_path / "trace.json.gz"
    event = {"ph": "X", "cat": "cpu_op", "pid": 1, "tid": 1}
    events = [event | {"name": "b", "ts": 1500, "dur": 500}, {"ph": "i", "name": "mark", "ts": 1200}]
    events += [event | {"name": "a", "ts": 1000, "dur": 2000}]
    with gzip.open(path, "wt") as file:
        json.dump({"traceEvents": events}, file)
    spans = [(span.name, round(span.start, 6), round(span.end, 6)) for span in tracefile.read(path)]
    assert spans == [("a", 0.0, 0.002), ("b", 0.0005, 0.001)]


def test_self_time_counts_nothing_twice():
    for spans, expected in (
        ([("outer", 0, 10, 1), ("inner", 2, 5, 1), ("deep", 3, 4, 1)], {"outer": 7, "inner": 2, "deep": 1}),
        ([("a", 0, 4, 1), ("b", 1, 3, 2)], {"a": 4, "b": 2}),  # another row is not inside
        ([("a", 0, 2, 1), ("a", 2, 5, 1), ("b", 5, 6, 1)], {"a": 5, "b": 1}),  # side by side
        ([], {}),
    ):
        made = [Span(name, "cpu_op", (1, row), start, end) for name, start, end, row in spans]
        assert tracefile.self_seconds(reversed(made)) == pytest.approx(expected)


def test_kernels_get_a_row_of_their_own():
    spans = [
        Span("step", tracefile.YOURS, (1, 1), 0.0, 1.0),
        Span("aten::mm", tracefile.OPERATIONS, (1, 1), 0.1, 0.2),
        Span("gemm", "kernel", (0, 7), 0.2, 0.9),
    ]
    labels = tracefile.draw(spans).axes[0].get_yticklabels()
    assert [label.get_text() for label in labels] == ["GPU kernels", "operations", "your ranges"]


def test_quiet_hides_what_c_code_writes_and_one_warning_and_gives_the_stream_back(capfd, recwarn, monkeypatch):
    monkeypatch.setattr("torch.profiler.profiler._WARNINGS_SHOWN", set())  # PyTorch says it once in a process
    cycles = schedule(wait=0, warmup=1, active=1)
    with tracefile.quiet(), profile(activities=[ProfilerActivity.CPU], schedule=cycles) as profiler:
        for _ in range(6):  # three cycles
            torch.ones(2) + 1
            profiler.step()
        os.write(2, b"hidden\n")
        warnings.warn("mine", stacklevel=1)
    os.write(2, b"shown\n")
    assert capfd.readouterr().err == "shown\n"
    assert [str(warning.message) for warning in recwarn] == ["mine"]
