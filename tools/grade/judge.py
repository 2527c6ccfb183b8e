"""One submission, from its cells to its verdicts: `run_apart`, which works in a process of its own.

The notebook runs in a sandbox that holds no checks. Where it comes to a check, the judgment is made here, outside:
fresh inputs go in, plain data comes out and is compared. What the student's process holds, patches or forges plays no
part in the comparison, since it never meets an expected result.

This process has limits too: what a submission makes it read is bounded, and so are its memory and its time.
"""

import contextlib
import ctypes
import errno
import json
import os
import resource
import select
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from multiprocessing.connection import Client, Connection
from pathlib import Path
from typing import Any

import cloudpickle
import psutil

from labcheck import answer as answers
from labcheck import exercise, judge, verdict
from tools.grade import sandbox
from tools.grade.in_sandbox import wire
from tools.grade.sandbox import Limits, Report
from torchcourse.place import LABS

SPARE = 4 * 2**30  # bytes of memory that this process may take
TEXTS = 10**6  # characters that all cells of a notebook show: a report must not become too large to be sent
CELLS, TEXT = 2000, 10_100  # run_submission.py keeps to these, but may be forged
FILES = 512  # that this process may have open, fewer than one in a sandbox: `sandbox.scarce` notices before they do
PR_SET_PDEATHSIG = 1
PATIENCE = 10  # seconds for runs to end when they have to
Seeds = dict[str, list[int]]  # exercise -> the secret seeds that it is judged with
RESULTS = (answers.call, answers._attempted_there)  # probes that return what the answer returned, or nothing


class Lost(BaseException):
    """The answer's process is gone, or does not speak our language. No Exception: a judge must not take it for one."""


class Remote(answers.RemoteAnswer):
    """An answer in the sandbox, at the other end of a channel."""

    def __init__(self, channel: socket.socket, worked: Callable[[], float] = time.process_time) -> None:
        self.channel, self.worked = channel, worked
        self.watched = False  # whether a probe has looked at more than the results of calls

    def observe(self, probe: Any, *args: Any, **options: Any) -> Any:
        self.watched |= probe not in RESULTS
        try:
            wire.send(self.channel, None, cloudpickle.dumps((probe, args, options)))
            reply, block = wire.receive(self.channel)
            return self.understood(reply, block)
        except (OSError, wire.Gone):
            raise Lost("the process ended before its verdict") from None
        except (wire.Garbage, ValueError, TypeError, KeyError, IndexError, AttributeError):
            raise Lost("the process sent something that is no result") from None

    @staticmethod
    def understood(reply: dict, block: bytes) -> Any:
        if not isinstance(reply, dict) or len(reply) != 1:
            raise wire.Garbage("no reply")
        kind, content = next(iter(reply.items()))
        match kind:
            case "value":
                return wire.unpack(content, block)
            case "not attempted":
                raise verdict.NotAttempted
            case "incorrect":
                problem, expected, yours, look = (each if each is None else clean(each, 2000) for each in content)
                wrong = verdict.Incorrect(problem, look=look)
                wrong.expected, wrong.yours = expected, yours
                raise wrong
            case "raised":
                kinds, message, line = content
                raise verdict.AnswerRaised(error_elsewhere(kinds, message, line))
            case "stumbled":
                raise RuntimeError(clean(content, 500))
        raise wire.Garbage(f"an unknown reply: {clean(kind, 50)}")


def error_elsewhere(kinds: list[str], message: str, line: str | None) -> Exception:
    """An exception that says what one in another process said, and is of the same kind, as far as Python has it."""
    known = [vars(sys.modules["builtins"]).get(clean(kind, 80)) for kind in kinds[:20]]
    base = next((kind for kind in known if isinstance(kind, type) and issubclass(kind, Exception)), Exception)
    if issubclass(base, UnicodeError):  # these ask for more than a message
        base = ValueError
    # A KeyError would quote its message once more.
    error = type(clean(kinds[0], 80), (base,), {"__str__": lambda self: self.args[0]})(clean(message, 2000))
    error.line_elsewhere = None if line is None else clean(line, 300)
    return error


def clean(text: Any, longest: int) -> str:
    """A string that any file can hold, of limited length."""
    return str(text)[:longest].encode("utf-8", "replace").decode()


def run_apart(address: str, cells: list[dict], chapter: str, seeds: Seeds, limits: Limits, data: Path | None) -> Report:
    """Run the cells of a notebook and judge its answers, in a process of its own; a process that breaks is a sentence.

    address: where a `server` takes jobs
    cells: each with id and source, or with id, name and asks: there the answer `asks` to the exercise `name` is due
    """
    with Client(address) as ours:
        try:
            ours.send((cells, chapter, seeds, limits, data))
            process = ours.recv()
            if ours.poll(whole_time(chapter, seeds, limits)):
                return Report(**json.loads(ours.recv_bytes(sandbox.REPORT)))
            os.kill(process, signal.SIGTERM)  # it removes what it has made, should it still be there
            if not ours.poll(limits.patience):  # the end of the stream: it has ended
                os.kill(process, signal.SIGKILL)
        except (EOFError, OSError):
            pass
    return Report(ended="judging stopped early: it hit its own limits", disturbed=True, failed=True)


@contextlib.contextmanager
def server() -> Iterator[str]:
    """A process that others are forked from: they need not import PyTorch again. Gives the address where it takes jobs.

    Not multiprocessing's fork server: it passes open files through sockets, and Linux limits how many are in flight for
    each user. For a plain user, the sandbox of one submission could use them up for all others.
    At the end, all runs end, each with its sandbox.
    """
    with tempfile.TemporaryDirectory(prefix="grade-") as folder, socket.socket(socket.AF_UNIX) as listening:
        listening.bind(address := f"{folder}/jobs")
        listening.listen(128)
        program = f"import sys; sys.path[:] = {sys.path!r}; from {__name__} import serve; serve({listening.fileno()})"
        # Its input ends when this process does, however that happens.
        options = {"stdin": subprocess.PIPE, "pass_fds": [listening.fileno()], "start_new_session": True}
        with subprocess.Popen([sys.executable, "-c", program], **options) as process:
            try:
                yield address
            finally:
                with contextlib.suppress(psutil.NoSuchProcess):
                    runs = psutil.Process(process.pid).children()
                    for run in runs:
                        run.terminate()
                    psutil.wait_procs(runs, PATIENCE)


def serve(number: int) -> None:
    """Fork a process for each job, until the process that has started this one ends.

    number: of the socket that listens for jobs
    """
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for the processes that do the jobs
    listening = socket.socket(fileno=number)
    while sys.stdin not in select.select([sys.stdin, listening], [], [])[0]:
        with listening.accept()[0] as job:
            if os.fork() == 0:
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                try:
                    _work(Connection(job.detach()))
                finally:
                    os._exit(0)


def whole_time(chapter: str, seeds: Seeds, limits: Limits) -> float:
    """Seconds after which a submission has ended, whatever it does."""
    exercises = exercise.load_chapter(chapter)  # and no other: all of them take seconds to import
    seeded = sum(len(own) * judge.STARVED * exercises[name].seconds for name, own in seeds.items())
    return limits.clock * limits.seconds + seeded + (len(seeds) + 6) * limits.patience


def _work(channel: Connection) -> None:
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)  # however the parent ends
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the command, which ends this process
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    channel.send(os.getpid())
    cells, chapter, seeds, limits, data = channel.recv()
    resource.setrlimit(resource.RLIMIT_DATA, (SPARE, SPARE))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    files, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(FILES, files), most))
    os.environ |= {"TORCHCOURSE_OFFLINE": "1", "TORCHCOURSE_DATA": str(data or Path(tempfile.gettempdir()) / "none")}
    channel.send_bytes(json.dumps(vars(run(cells, chapter, seeds, limits, data))).encode())


def run(cells: list[dict], chapter: str, seeds: Seeds, limits: Limits, data: Path | None) -> Report:
    """What `run_apart` does. Changes random generators and the alarm clock of this process while it judges."""
    exercise.load_chapter(chapter)
    send_probes_by_value()
    channels = {name: socket.socketpair() for name in seeds}
    far = [theirs for _, theirs in channels.values()]
    report = Report(failed=True)  # until the notebook has started
    job = {"cells": cells, "served": {name: theirs.fileno() for name, (_, theirs) in channels.items()}}
    with sandbox.started(job, [each.fileno() for each in far], limits, data) as box:
        for each in far:
            each.close()
        longest = limits.clock * limits.seconds
        deadline = time.monotonic() + 3 * limits.patience
        try:
            while report.ended != "whole":
                said, block = wire.receive(box.channel, max(0.001, deadline - time.monotonic()))
                if "started" in said and not report.cells:
                    report.failed = False
                    deadline = time.monotonic() + longest
                elif "cell" in said and len(report.cells) < CELLS:
                    report.cells[clean(said["cell"], 80)] = shown = _shown(said, report.cells)
                    report.disturbed |= shown["late"] == "clock"
                elif "check" in said and said["check"] in channels:
                    before = time.monotonic()
                    with channels.pop(said["check"])[0] as ours:
                        remote = Remote(ours, lambda: box.cpu_seconds)
                        answer = wire.unpack(said["value"], block) if "value" in said else remote
                        report.verdicts[said["check"]] = verdict = judged(said["check"], answer, seeds[said["check"]])
                        report.disturbed |= verdict.get("by_clock", False)
                    deadline += time.monotonic() - before
                elif "whole" in said:
                    report.ended = "whole"
                elif "stuck" in said:
                    reason = sandbox.LATE[said["stuck"]]
                    report.ended = f"time limit: a cell ran on although it was interrupted ({reason})"
                    report.disturbed |= said["stuck"] == "clock"
                    break
        except wire.Gone:
            late = time.monotonic() > deadline
            report.ended = f"time limit: the notebook was still running after {longest:g} s" if late else ""
            report.disturbed |= late
        except (wire.Garbage, KeyError, TypeError, AttributeError, ValueError):
            report.ended = "the notebook wrote into the channel of the grader"
        for ours, _ in channels.values():
            ours.close()
        report.ended = box.end() or report.ended or "the notebook ended itself before its last cell"
        if not report.cells and (complaint := box.complaint()):
            report.ended, report.disturbed = f"the sandbox could not start: {clean(complaint, 500)}", True
        report.disturbed |= box.scarce or os.strerror(errno.ETOOMANYREFS) in json.dumps(vars(report))
    return report


def send_probes_by_value() -> None:
    """Probes of exercises travel with their code: in the sandbox of a notebook, none of their modules is there."""
    for name in [name for name in sys.modules if name.partition(".")[0] == LABS]:
        cloudpickle.register_pickle_by_value(sys.modules[name])


def _shown(said: dict, cells: dict[str, dict]) -> dict:
    """What a cell showed, as the notebook says: untrusted content, so each part is rebuilt."""
    words = max(0, TEXTS - sum(len(each["text"]) + len(each["error"]) for each in cells.values()))
    return {
        "text": clean(said["text"], min(TEXT, words)),
        "error": sandbox.COLORS.sub("", clean(said["error"], min(TEXT, words))),
        "late": said["late"] if said["late"] in sandbox.LATE else "",
    }


def judged(name: str, answer: Any, seeds: list[int]) -> dict[str, Any]:
    """The verdict on an answer: right with every seed, or the first that is wrong."""
    try:
        for seed in seeds:
            start = time.monotonic()
            result = judge.evaluate(name, answer, seed)
            if not result.correct:
                break
    except Lost as lost:
        return {"outcome": "no verdict", "message": str(lost)}
    said = {key: getattr(result, key) for key in ("outcome", "message", "expected", "yours", "look")}
    stumbled = repr(result.judge_failed)[:500] if result.judge_failed else None
    by_clock = not result.correct and time.monotonic() - start >= judge.STARVED * exercise.find(name).seconds
    said = {key: value if value is None else clean(value, 2000) for key, value in said.items()}
    return said | {"stumbled": stumbled, "by_clock": by_clock, "watched": isinstance(answer, Remote) and answer.watched}
