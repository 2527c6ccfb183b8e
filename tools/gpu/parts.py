"""The parts of a run on a GPU machine, each in a process of its own.

A process, because a GPU that was misused once ("device-side assert") is lost for the process that did it, because
memory comes back for sure, and because a process can be stopped when its time is over.
"""

import contextlib
import importlib.util
import json
import math
import os
import signal
import subprocess
import sys
import time
import xml.etree.ElementTree as ElementTree
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

# In this order: what is quick and decides most comes first. "run" takes all the time that is left.
PARTS = ("tests", "mnist", "cifar", "throughput", "run", "precision", "ddp", "checkpoints")
MEASURED = tuple(part for part in PARTS if part not in ("tests", "run"))
CUT = 3  # exit status of a part that ran out of time and can go on
GRACE = 60  # seconds that a part may take longer than its limit, to write down what it has
HANGS = 150  # seconds after which a test ends all tests, if pytest-timeout is there: the other parts want time, too
# A machine with PyTorch often has plugins of pytest as well, of any age: one that does not fit ends the tests at once.
OWN = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}


@dataclass(frozen=True)
class Outcome:
    """One row of the table."""

    part: str
    status: str  # passed, measured, cut off, failed
    seconds: float
    note: str = ""


def gpu_tests(root: Path) -> list[str]:
    """The test files that have tests for a GPU: those that use the marker. Others may not even import there."""
    return [str(path) for path in sorted((root / "tests").glob("test_*.py")) if "mark.gpu" in path.read_text()]


def share(minutes: float | None, left: float) -> float | None:
    """The time limit of the next part in minutes: its own, or what the seconds `left` allow for; None: no limit."""
    limits = [minutes] * (minutes is not None) + [(left - GRACE) / 60] * (left < math.inf)
    return min(limits, default=None)


def command(
    part: str,
    root: Path,
    out: Path,
    minutes: float | None,
    quick: bool,
    chapters: list[str],
    folder: Path | None,
    again: bool = False,
) -> list[str]:
    """What runs a part. minutes: its time limit. folder: for the measurements; None means the package's."""
    limit = [] if minutes is None else ["--minutes", f"{minutes:g}"]
    python = [sys.executable, "-m"]
    if part == "run":
        words = ["--chapters", *chapters] if chapters else []
        return [*python, "tools.gpu.course", "--out", str(out / "run"), *limit, *words]
    if part == "tests":
        chosen = gpu_tests(root) or ["tests"]
        plugins = ["-p", "no:cacheprovider", "-o", f"faulthandler_timeout={HANGS * 2 // 3}"]  # shows where it hangs
        if importlib.util.find_spec("pytest_timeout"):
            plugins += ["-p", "pytest_timeout", f"--timeout={HANGS}"]
        # -v: the name of a test is there before it ends, if it ends.
        return [*python, "pytest", "-v", "-m", "gpu", *plugins, f"--junitxml={out / 'tests.xml'}", *chosen]
    places = ["--folder", str(folder)] if folder else []
    return [*python, "tools.bench", part, *limit, *places, *["--quick"] * quick, *["--again"] * again]


def perform(
    part: str, what: list[str], environment: Mapping[str, str], minutes: float | None, root: Path, out: Path
) -> Outcome:
    """Run a part's command with its output shown; end it when it is late. Ctrl-C ends it, too, and is passed on."""
    start = time.monotonic()
    if part == "tests":  # what the tests said stays for the archive, also after later parts
        (out / "tests.xml").unlink(missing_ok=True)
    # A session of its own: a Ctrl-C then comes to us alone, and we stop the part in good order.
    process = subprocess.Popen(what, cwd=root, env=os.environ | OWN | dict(environment), start_new_session=True)
    late = False
    try:
        process.wait(None if minutes is None else 60 * minutes + GRACE)
    except subprocess.TimeoutExpired:
        late = True
        stop(process)
    except KeyboardInterrupt:
        stop(process)
        raise
    return judge(part, process.returncode, late, time.monotonic() - start, out)


def judge(part: str, status: int, late: bool, seconds: float, out: Path) -> Outcome:
    """What an exit status means."""
    good = "measured" if part in MEASURED else "passed"
    note = {"tests": counted, "run": executed}.get(part, lambda out: "")(out)
    if late:
        return Outcome(part, "cut off", seconds, "stopped: more than a minute over its time")
    if status == 0:
        return Outcome(part, good, seconds, note)
    if status == CUT and part != "tests":
        return Outcome(part, "cut off", seconds, f"{note}{'; ' * bool(note)}run again to go on")
    if status == 5 and part == "tests":
        return Outcome(part, "failed", seconds, "no test carries the marker `gpu`")
    return Outcome(part, "failed", seconds, note or f"exit status {status}, see above")


def executed(out: Path) -> str:
    """How many notebooks passed, failed, were over their budget, in this run and those before it."""
    path = out / "run" / "done.json"
    if not path.exists():
        return ""
    states = [row["status"] for row in json.loads(path.read_text()).values()]
    return ", ".join(f"{states.count(state)} {state}" for state in sorted(set(states), reverse=True))


def counted(out: Path) -> str:
    """How many tests passed, failed, were skipped; "" where pytest did not get so far."""
    try:
        suite = ElementTree.parse(out / "tests.xml").getroot().find("testsuite")
        tests, skipped = int(suite.get("tests")), int(suite.get("skipped"))
        failed = int(suite.get("failures")) + int(suite.get("errors"))
    except (OSError, ElementTree.ParseError, AttributeError, TypeError):
        return ""
    numbers = {"passed": tests - failed - skipped, "failed": failed, "skipped": skipped}
    return ", ".join(f"{number} {word}" for word, number in numbers.items() if number)


def stop(process: subprocess.Popen, patience: float = 20) -> None:
    """End a process and all that it started: asked first, so that it can write down what it has, then by force."""
    family = descendants(process.pid)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGINT)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(patience)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    for child in family:  # those with a session of their own, as the kernels of notebooks
        with contextlib.suppress(Exception):
            child.kill()
    process.wait()


def descendants(pid: int) -> list:
    """All processes that a process started, and those that they started."""
    with contextlib.suppress(Exception):  # psutil may be missing here, or the process gone
        import psutil

        return psutil.Process(pid).children(recursive=True)
    return []
