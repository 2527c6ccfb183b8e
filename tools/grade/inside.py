"""What runs in the sandbox: first the notebook, then the judgment of its answers. Nothing here is ever run outside.

Two kinds of process are forked from the first one, which has imported PyTorch and the checks, and then touches nothing
of the student's:

    notebook    runs all cells in IPython. At a check cell it packs the answer (cloudpickle) into a file instead:
                what a student did to `check`, to our modules or to IPython stays behind in this process.
    judge       one for each exercise, after the notebook and all that it started are gone. Unpacks the answer, judges
                it with each secret seed, and sends its verdict back together with a word that only we know.

The job comes as two lines of JSON on the standard input, the second one (seeds) read only when the notebook has ended.
The report goes out as lines of JSON, each as soon as it is known, so that nothing is lost when we are stopped.
"""

import base64
import contextlib
import ctypes
import dataclasses
import importlib
import io
import json
import linecache
import os
import re
import resource
import secrets
import select
import shutil
import signal
import sys
import threading
import time
import traceback
import types
from pathlib import Path
from typing import Any

HAND_IN = Path("/hand-in")  # a small file system of its own: who fills the disk can still hand in
TEXT = 10_000  # characters of printed text that are kept of a cell
PICTURES, PICTURE = 12, 400_000  # pictures that are kept of a notebook, characters of one
PR_SET_DUMPABLE, PR_SET_CHILD_SUBREAPER = 4, 36


def main() -> None:
    if not Path("/grade/inside.py").samefile(__file__) or Path("/proc/1/comm").read_text().strip() != "bwrap":
        sys.exit("This file runs in the sandbox of `make grade` only.")
    line = io.FileIO(0)  # without a buffer: the second line must not be in memory when the notebook is forked
    job = json.loads(line.readline())
    report = os.dup(1)
    confine(job)

    engine = importlib.import_module("torchcourse.checks.engine")
    importlib.import_module(f"torchcourse.checks.{job['chapter'].partition('_')[2]}")
    for name, exercise in engine.EXERCISES.items():
        # Several submissions are judged at the same time, on one core each: an honest answer must not be too slow.
        engine.EXERCISES[name] = dataclasses.replace(exercise, seconds=3 * exercise.seconds)
    engine.evaluate(name, ..., 0)  # PyTorch imports more of itself at the first judgment: better here than in each fork

    ended = run_notebook(job)
    say(report, kind="notebook", ended=ended, cells=outputs())
    seeds = json.loads(line.readline())
    for name, own in seeds.items():
        say(report, kind="verdict", name=name, **judge(engine, name, own, job["patience"]))
    say(report, kind="end", cpu_seconds=sum(os.times()[:4]))


def say(report: int, **content: Any) -> None:
    os.write(report, json.dumps(content).encode() + b"\n")


def confine(job: dict) -> None:
    """Limits that the processes below cannot lift; another user than root; no look into this process from outside."""
    if os.getuid() == 0:
        os.setgroups([])
        os.setresgid(job["user"], job["user"], job["user"])
        os.setresuid(job["user"], job["user"], job["user"])
    clear_disk()
    memory = job["mib"] * 2**20
    for what, limit in (("NPROC", job["processes"]), ("DATA", memory), ("CORE", 0)):
        resource.setrlimit(getattr(resource, f"RLIMIT_{what}"), (limit, limit))
    libc = ctypes.CDLL(None)
    libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)  # whose parent died becomes our child: `end_children` finds all
    libc.prctl(PR_SET_DUMPABLE, 0, 0, 0, 0)  # no debugger, no /proc/PID/mem, no /proc/PID/fd for the student's code


def clear_disk() -> None:
    """An empty disk and a fresh home: no file that was left there can meet a Python that the judgment starts."""
    for folder in (Path("/tmp"), Path("/dev/shm")):
        for number, path in enumerate(list(folder.iterdir())):
            # Renamed first: what cannot be deleted shall not keep its name.
            gone = path.rename(folder / f"{secrets.token_hex(8)}-{number}")
            if gone.is_dir() and not gone.is_symlink():
                shutil.rmtree(gone, ignore_errors=True)
            else:
                gone.unlink(missing_ok=True)
    shutil.copytree("/grade/home", "/tmp/home")
    os.makedirs("/tmp/home/lab")
    os.chdir("/tmp/home/lab")


def fork(keep: int | None = None) -> int:
    """Fork; the child has no way to our input and report: all files but `keep` are closed."""
    sys.stdout.flush()
    pid = os.fork()
    if pid == 0:
        os.setsid()
        nothing = os.open(os.devnull, os.O_RDWR)
        for number in (0, 1, 2):
            os.dup2(nothing, number)
        for number in range(3, 256):
            if number != keep:
                with contextlib.suppress(OSError):
                    os.close(number)
    return pid


def end_children() -> None:
    """Kill all that this process has started, directly or not, until nothing is left."""
    for _ in range(200):
        for path in Path("/proc").iterdir():
            if path.name.isdigit() and int(path.name) not in (1, os.getpid()):
                with contextlib.suppress(OSError):
                    os.kill(int(path.name), signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
            time.sleep(0.02)
            continue
        return


# ---------------------------------------------------------------------------------------------------------------------
# The notebook


def run_notebook(job: dict) -> str:
    """Run all cells in a process of its own. Returns how it ended: "whole", or a sentence."""
    pid = fork()
    if pid == 0:
        try:
            play(job)
        except BaseException:
            (HAND_IN / "trouble").write_text(traceback.format_exc())
        finally:
            os._exit(0)
    deadline = time.monotonic() + job["seconds"]
    gone, status = os.waitpid(pid, os.WNOHANG)
    while not gone and time.monotonic() < deadline:
        time.sleep(0.02)
        gone, status = os.waitpid(pid, os.WNOHANG)
    end_children()
    if (HAND_IN / "whole").exists():
        return "whole"
    if not gone:
        return f"time limit: the notebook was still running after {job['seconds']:g} s"
    if os.WIFSIGNALED(status):
        return f"the notebook was ended by the signal {signal.Signals(os.WTERMSIG(status)).name}"
    trouble = (HAND_IN / "trouble").read_text()[-500:] if (HAND_IN / "trouble").is_file() else ""
    return f"the notebook ended itself before its last cell {trouble}".strip()


def play(job: dict) -> None:
    """Run the cells one after the other, and hand in the answer at each check. An error ends its cell only."""
    ctypes.CDLL(None).prctl(PR_SET_DUMPABLE, 1, 0, 0, 0)
    from IPython.core.interactiveshell import InteractiveShell
    from IPython.utils.capture import capture_output

    errors: list[str] = []

    class Shell(InteractiveShell):
        def _showtraceback(self, kind: Any, error: Any, lines: list[str]) -> None:
            errors.append(f"{kind.__name__}: {error}" if kind is SyntaxError else "\n".join(lines))

    shell = Shell.instance()
    shell.history_manager.enabled = False
    clock = Clock(job["cell_seconds"])
    pictures = 0
    for cell in job["cells"]:
        errors.clear()
        printed = Capped()
        shown: list = []
        clock.start_cell()
        try:
            if "asks" in cell:
                hand_in(shell, cell["name"], cell["asks"])
            else:
                with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
                    with capture_output(stdout=False, stderr=False) as seen:
                        shell.run_cell(cell["source"], store_history=True)
                    shown = seen.outputs
        except (Exception, KeyboardInterrupt, SystemExit) as error:
            errors.append(f"{type(error).__name__}: {error}")
        late = clock.stop_cell()
        record = {"id": cell["id"], "text": printed.getvalue(), "late": late, "error": "\n".join(errors)[-TEXT:]}
        for output in shown:
            data = getattr(output, "data", {})
            picture = data.get("image/png")
            if isinstance(picture, bytes):
                picture = base64.b64encode(picture).decode()
            if isinstance(picture, str) and len(picture) < PICTURE and pictures < PICTURES:
                record.setdefault("pictures", []).append(picture)
                pictures += 1
            elif "text/plain" in data:
                record["text"] = f"{record['text']}{data['text/plain']}\n"[:TEXT]
        with contextlib.suppress(OSError), open(HAND_IN / "cells", "a") as file:
            file.write(json.dumps(record) + "\n")
    (HAND_IN / "whole").touch()


class Capped(io.StringIO):
    """Keeps the first characters of what is printed."""

    def write(self, text: str) -> int:
        room = TEXT - self.tell()
        if room > 0:
            super().write(text[:room] + ("\n… (more was printed)\n" if len(text) > room else ""))
        return len(text)


class Clock(threading.Thread):
    """Interrupts a cell that takes too long, as the stop button does: again every second, it may be caught."""

    def __init__(self, limit: float) -> None:
        super().__init__(daemon=True)
        self.limit, self.since, self.late = limit, None, False
        self.start()

    def start_cell(self) -> None:
        self.since, self.late = time.monotonic(), False

    def stop_cell(self) -> bool:
        self.since = None
        return self.late

    def run(self) -> None:
        while True:
            time.sleep(0.2)
            if self.since is not None and time.monotonic() - self.since > self.limit:
                self.late = True
                signal.raise_signal(signal.SIGINT)
                time.sleep(1)


def hand_in(shell: Any, name: str, asked: str) -> None:
    """Pack the answer that a check asks for, with the source lines that messages quote."""
    import cloudpickle

    for module in list(sys.modules.values()):  # a file that the student wrote and imported comes along by value
        if (getattr(module, "__file__", None) or "").startswith("/tmp/"):
            cloudpickle.register_pickle_by_value(module)
    answer = eval(asked, shell.user_ns)
    lines = {file: entry[2] for file, entry in linecache.cache.items() if len(entry) == 4 and entry[1] is None}
    packed = cloudpickle.dumps((lines, answer))
    (HAND_IN / f"{name}.part").write_bytes(packed)
    os.replace(HAND_IN / f"{name}.part", HAND_IN / name)


def outputs() -> dict[str, dict]:
    """What the cells showed, as the notebook wrote it down: foreign content, so each part is checked."""
    cells: dict[str, dict] = {}
    with contextlib.suppress(OSError, ValueError, RecursionError, KeyError, TypeError, AttributeError):
        text = (HAND_IN / "cells").open().read(PICTURES * PICTURE + 2_000_000)
        for line in text.splitlines():
            record = json.loads(line)
            pictures = [each for each in record.get("pictures", []) if isinstance(each, str) and len(each) < PICTURE]
            cells[str(record["id"])[:80]] = {
                "text": str(record["text"])[: TEXT + 100],
                "error": re.sub(r"\x1b\[[\d;]*m", "", str(record["error"])[:TEXT]),  # without colors
                "late": bool(record["late"]),
                "pictures": pictures[:PICTURES],
            }
    return cells


# ---------------------------------------------------------------------------------------------------------------------
# The judgment


def judge(engine: Any, name: str, seeds: list[int], patience: float) -> dict[str, Any]:
    """The verdict on one answer, from a process of its own: right with every seed, or the first that shows it wrong."""
    packed = HAND_IN / name
    if not packed.is_file() or packed.is_symlink():
        return {"outcome": "not handed in"}
    clear_disk()
    word = secrets.token_hex().encode()
    ours, theirs = os.pipe()
    pid = fork(keep=theirs)
    if pid == 0:
        try:
            verdict = judged(engine, name, packed, seeds)
            os.write(theirs, word + json.dumps(verdict).encode() + b"\n")
        finally:
            os._exit(0)
    os.close(theirs)
    deadline = time.monotonic() + len(seeds) * engine.EXERCISES[name].seconds + patience
    heard = b""
    while not heard.endswith(b"\n") and len(heard) < 100_000:
        if not select.select([ours], [], [], max(0, deadline - time.monotonic()))[0]:
            break
        more = os.read(ours, 65536)
        if not more:
            break
        heard += more
    late = time.monotonic() > deadline
    os.close(ours)
    end_children()
    if heard.startswith(word) and heard.endswith(b"\n"):
        return json.loads(heard[len(word) :])
    return {"outcome": "no verdict", "message": "time limit" if late else "the process ended before its verdict"}


def judged(engine: Any, name: str, packed: Path, seeds: list[int]) -> dict[str, Any]:
    """Unpack one answer and judge it. Runs the student's code."""
    import cloudpickle

    before = callables()
    sys.modules["__main__"] = types.ModuleType("__main__")
    lines, answer = cloudpickle.loads(packed.read_bytes())
    for file, text in lines.items():
        linecache.cache[file] = (sum(map(len, text)), None, text, file)
    result = None
    for seed in seeds:
        result = engine.evaluate(name, answer, seed)
        if not result.correct:
            break
    changed = [f"{place}.{key}" for (place, key), was in before.items() if was.replaced(engine, place, key)]
    if changed:
        return {"outcome": "incorrect", "message": f"Your answer replaced `{changed[0]}`.", "changed": changed[:5]}
    said = {key: getattr(result, key) for key in ("outcome", "message", "expected", "yours", "look")}
    return {
        **{key: value if value is None else str(value)[:2000] for key, value in said.items()},
        "stumbled": repr(result.judge_failed)[:500] if result.judge_failed else None,
    }


class Callable:
    """A function or class as it was before the answer ran."""

    def __init__(self, thing: Any) -> None:
        self.thing, self.code = thing, getattr(thing, "__code__", None)
        inside = vars(thing) if isinstance(thing, type) else {}
        self.methods = {key: each for key, each in inside.items() if callable(each)}

    def replaced(self, engine: Any, module: str, name: str) -> bool:
        """Tell whether something foreign stands in its place now, or is its code, or is one of its methods.

        PyTorch wraps functions and methods of its own when they are first used, and so does the practice GPU.
        """

        def foreign(thing: Any) -> bool:
            code = getattr(thing, "__code__", None)
            if code:
                return engine.is_students(code.co_filename)
            return str(getattr(thing, "__module__", "")).partition(".")[0] not in ("torch", "torchcourse")

        now = vars(sys.modules.get(module, sys)).get(name)
        if now is not self.thing or getattr(now, "__code__", None) is not self.code:
            a_check = module.startswith("torchcourse.checks") and not isinstance(self.thing, type)
            return a_check or foreign(now)
        return any(vars(now).get(key) is not each and foreign(vars(now).get(key)) for key, each in self.methods.items())


def callables() -> dict[tuple[str, str], Callable]:
    """The functions and classes of the course, and those of PyTorch and Python that its checks work with most."""
    own = [name for name in sys.modules if name.partition(".")[0] == "torchcourse"]
    return {
        (module, name): Callable(thing)
        for module in (*own, "torch", "torch.nn.functional", "builtins", "math")
        for name, thing in list(vars(sys.modules[module]).items())
        if callable(thing)
    }


if __name__ == "__main__":
    main()
