"""What lecture 08 writes for TensorBoard: a real TensorBoard shows it, in a browser, without fetching from outside."""

import os
import re
import subprocess
import sys
import time
import urllib.request
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from conftest import skip_or_fail
from torch import nn

from tools import build, course
from tools.course import ROOT
from tools.slides_browser import PATIENCE

PICTURES = ROOT / "build" / "screenshots"


@pytest.fixture(scope="module")
def runs(tmp_path_factory) -> Path:
    """The folder that the lecture's own cell writes, here with a small network and two batches."""
    try:
        import tensorboard  # noqa: F401
    except ImportError:
        skip_or_fail("TensorBoard is not installed.")
    (chapter,) = course.select(["08"])
    (cell,) = (
        cell.source
        for cell in build.edition(chapter, "lecture").cells
        if cell.cell_type == "code" and "with SummaryWriter(" in cell.source
    )
    batches = [(torch.rand(4, 3, 8, 8), torch.tensor([0, 1, 2, 3])) for _ in range(3)]
    names = {
        "as_found": batches,
        "in_memory": batches[:2],
        "network": lambda: nn.Sequential(nn.Flatten(), nn.Linear(192, 10)),
        "adamw": lambda model: torch.optim.AdamW(model.parameters()),
        "F": F,
        "Path": Path,
        "time": time,
    }
    folder = tmp_path_factory.mktemp("tensorboard")
    before = Path.cwd()
    os.chdir(folder)
    try:
        exec(compile(cell, "the lecture's cell", "exec"), names)
    finally:
        os.chdir(before)
    return folder / "runs"


@contextmanager
def tensorboard(folder: Path):
    """A running TensorBoard; yields its address once it answers."""
    command = [sys.executable, "-m", "tensorboard.main", "--logdir", str(folder), "--host", "127.0.0.1", "--port", "0"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    said = []
    try:
        for line in process.stdout:  # ends with the process if it cannot start
            said.append(line)
            if found := re.search(r"http://127\.0\.0\.1:\d+", line):
                break
        else:
            raise AssertionError("TensorBoard did not start: " + "".join(said))
        with suppress(OSError):
            urllib.request.urlopen(found[0], timeout=60).close()
        yield found[0]
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def test_the_page_shows_both_runs_and_their_curves(runs, chromium):
    context = chromium.new_context(viewport={"width": 1400, "height": 900})
    context.set_default_timeout(PATIENCE)
    outside = []
    here = re.compile(r"data:|blob:|about:|http://127\.0\.0\.1:")
    context.on("request", lambda r: None if here.match(r.url) else outside.append(r.url))
    try:
        with tensorboard(runs) as address:
            page = context.new_page()
            page.goto(f"{address}/?darkMode=false#timeseries")
            for text in ("as found", "in memory", "images per second", "loss"):
                page.get_by_text(text, exact=True).first.wait_for()
            # A curve is drawn when its chart has data: the card then has a line.
            page.locator("scalar-card line-chart").first.wait_for()
            page.screenshot(path=PICTURES / "tensorboard.png")
    finally:
        context.close()
    assert outside == []


def test_the_numbers_are_those_of_the_training(runs):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    written = EventAccumulator(str(runs / "as found"))
    written.Reload()
    assert sorted(written.Tags()["scalars"]) == ["images per second", "loss"]
    assert [event.step for event in written.Scalars("loss")] == [0, 1, 2]
    assert all(event.value > 0 for event in written.Scalars("images per second"))
    assert written.Tags()["images"] == ["first photo of the batch"]
