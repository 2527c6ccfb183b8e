"""Shared by all tests: where the course lies, and what may be skipped."""

from __future__ import annotations

import atexit
import gc
import os
import random
import shutil
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    import psutil

    from labcheck.show import Result

if "PYTEST_XDIST_WORKER" in os.environ:
    # Before torch is imported: two workers that take both cores each wait for one another.
    os.environ.setdefault("OMP_NUM_THREADS", "1")


# The garbage collector would look through all that is imported again and again, a fifth of the time. It rests until all
# tests are collected.
gc.disable()


def pytest_configure() -> None:
    """Ctrl-C ends what the tests start, also where the suite itself is started with `&`, which ignores it."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


# Each test of these files executes a notebook or judges an answer: workers share them out one by one. Any other file
# stays on one worker, so that what its tests have in common is made once.
ONE_BY_ONE = ("test_colab.py", "test_labs.py", "test_exercises.py")
# Minutes each, so they come first; test_exercises.py comes in small pieces, which fill the workers at the end.
LONG = ["grade", "labs", "switches", "grade_values", "cluster_answers", "slides", "colab"]
LONG += ["new_chapter", "torchrun", "job"]
ORDER = [*(f"test_{name}.py" for name in LONG), "", "test_exercises.py"]


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Where several workers share the tests, the long files come first: none is left for the end."""
    if "PYTEST_XDIST_WORKER" in os.environ:
        items.sort(key=lambda item: ORDER.index(item.path.name if item.path.name in ORDER else ""))


def pytest_collection_finish() -> None:
    """Two things that would take a tenth of the time of a worker, and that no test is about."""
    # The garbage collector leaves alone what PyTorch's modules hold.
    gc.freeze()
    atexit.register(gc.unfreeze)  # a library in PyTorch complains about whatever is left at the end
    gc.set_threshold(20_000, 20, 20)
    gc.enable()
    # At each compilation, PyTorch flushes the processor's cache and times its guards, for a line of a log.
    if "torch" in sys.modules:
        sys.modules["torch"]._C._dynamo.guards.profile_guard_manager = lambda *_: 0.0


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> object:
    """Which tests go to one worker. Not by `--dist loadgroup`: it has no effect with pytest 9.2 and xdist 3.8."""
    from xdist.scheduler import LoadScopeScheduling

    config.option.loadscopereorder = False  # xdist's own order: files with many tests first, and those are quick

    class Scheduling(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            file = nodeid.split("::")[0]
            return nodeid if file.endswith(ONE_BY_ONE) else file

    return Scheduling(config, log)


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call() -> None:
    """Let a kernel that a test starts show what libraries write below Python, as it does everywhere else.

    With this variable around, ipykernel leaves such lines to pytest, and no test would see them in a notebook.
    """
    os.environ.pop("PYTEST_CURRENT_TEST", None)


@pytest.fixture(autouse=True)
def same_random_numbers():
    """What a test draws never depends on the tests before it. Chance is for the tests that are about it."""
    import numpy as np
    import torch

    random.seed(0)
    np.random.seed(0)
    torch.manual_seed(0)


@pytest.fixture
def no_network(monkeypatch):
    """Each test starts like a new process on a machine without network."""
    from torchcourse import data
    from torchcourse.data import banner, catalog

    monkeypatch.setenv("TORCHCOURSE_OFFLINE", "1")
    monkeypatch.setattr(data.sets, "_gave_up", None)
    monkeypatch.setattr(banner, "_shown", set())
    monkeypatch.setenv(banner.TOLD, "")
    for what in catalog.SPECS.values():
        for split, sums in what.checksums.items():
            monkeypatch.setitem(what.checksums, split, sums)  # put back after a test that calls `publish`


def wait_until(condition: Callable[[], object], what: str = "it", seconds: float = 600) -> None:
    """Wait for an event. The limit is there for a test that fails: nothing depends on how long the event takes."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"{what}: not within {seconds:.0f} s"
        time.sleep(0.05)


def is_alive(process: psutil.Process) -> bool:
    """Whether a process still runs. It may end while it is asked, and is a zombie until its parent takes note."""
    import psutil

    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def submitted(script: str) -> str:
    """A command that prints the number of a Slurm job and succeeds if the job does, as soon as it has ended.

    `sbatch --wait` looks at growing intervals: it would notice the end of a job of 15 seconds after 42.
    """
    ended = "while squeue --noheader --jobs $job | grep -q .; do sleep 0.3; done"
    return f"job=$(sbatch --parsable {script}) && echo $job && {ended}; scontrol show job $job | grep -q ExitCode=0:0"


@pytest.fixture
def home(tmp_path, monkeypatch) -> Path:
    """The current folder of a test with the practice cluster, whose jobs find this Python first."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    return tmp_path


def copy_of_course(root: Path) -> Path:
    """A copy of what the course is made of, for a test that changes it or works in it."""
    from tools import course, release

    for folder in ("hub", "labs", "notebooks", "slides/drawings", "solutions", "src", "tools"):
        shutil.copytree(course.ROOT / folder, root / folder, ignore=release.IGNORED)
    for name in release.FILES:
        (root / name).parent.mkdir(exist_ok=True)
        shutil.copy(course.ROOT / name, root / name)
    return root


def skip_or_fail(reason: str) -> None:
    """Skip on a person's machine where a part is missing; fail in CI, where nothing may be missing."""
    if os.environ.get("CI") == "true":
        pytest.fail(f"In CI nothing is skipped: {reason}")
    pytest.skip(reason)


def why_not(part: str) -> str:
    """Why a part of the system that the course can do without is of no use here, in a sentence; empty if it is."""
    from tools import slides_browser
    from tools.grade import sandbox
    from torchcourse.cluster import practice
    from torchcourse.lectures import compiling

    if part == "bubblewrap":
        return sandbox.why_not()
    if part == "Slurm":
        return practice.why_not()
    if part == "compiler":  # with Python's headers
        return compiling.missing() or ""
    found = slides_browser.executable() if part == "chromium" else shutil.which(part)
    return "" if found else f"{part} is not installed (Debian: apt install {part})."


def need(*parts: str) -> None:
    """Skip the test where one of these parts is missing: the one way to say so (see `why_not`)."""
    for reason in filter(None, map(why_not, parts)):
        if "refuses them" in reason:
            pytest.skip(reason)  # nothing to install helps
        skip_or_fail(reason)


def made_here(result: Result) -> Result:
    """A verdict. Skips the test where this machine lacks what the exercise needs, such as a compiler."""
    if result.outcome == "not checked":
        skip_or_fail(result.message)
    return result


@pytest.fixture(scope="module")
def chromium():
    """Headless Chromium, for the tests of one file."""
    from tools import slides_browser

    need("chromium")
    with slides_browser.browser() as opened:
        yield opened
