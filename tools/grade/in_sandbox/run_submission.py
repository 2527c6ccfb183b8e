"""What runs in a submission's sandbox: the notebook, from the first cell to the last, as "Restart and run all".

The chapters' checks are not in this sandbox, and no verdict is made here. Where a check is called, the answer is served
to the grader: it stays in its notebook, with everything that the notebook has defined until then, and is called with
inputs that the grader sends. Plain data goes back.

Whatever this process says may be forged: the grader takes its words as text, its results as results to compare.
"""

import contextlib
import io
import os
import pickle
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

import psutil
import torch
import wire
from IPython.core.interactiveshell import InteractiveShell
from IPython.utils.capture import capture_output

import labcheck
from labcheck import judge, lab, switches, verdict
from labcheck.answer import line_of
from labcheck.show import Result

TEXT = 10_000  # characters of printed text that are kept of a cell
# IPython's magics that only kernels have. Nothing that they do can be graded.
KERNEL_ONLY = ("autosave", "clear", "cls", "connect_info", "less", "man", "more", "qtconsole", "store", "subshell")
INTERRUPTS = 5  # that a cell may ignore, one each second
errors: list[str] = []  # of the cell that runs


class Shell(InteractiveShell):
    """With what a kernel adds. Pictures are inline, whatever the notebook asks for."""

    def enable_gui(self, gui: str | None = None) -> None:
        pass

    def enable_matplotlib(self, gui: str | None = None) -> tuple:
        return super().enable_matplotlib("inline")

    def _showtraceback(self, kind: Any, error: Any, lines: list[str]) -> None:
        errors.append(f"{kind.__name__}: {error}" if kind is SyntaxError else "\n".join(lines))


def run(job: dict, grader: socket.socket) -> None:
    """Run the cells one after the other. An error ends its cell only."""
    sys.path[0] = ""  # as in a notebook: a file that a cell has written can be imported
    # Some labs end with a figure made by the student's functions where these are right: here, by all of them.
    labcheck.evaluate = judge.evaluate = lab.evaluate = lambda name, *_, **__: Result(name, "correct", "")
    served = {name: socket.socket(fileno=number) for name, number in job["served"].items()}
    shell = Shell.instance()
    shell.history_manager.enabled = False
    shell.history_manager.outputs = Forgetful()
    for name in KERNEL_ONLY:
        shell.register_magic_function(lambda line: None, magic_name=name)
    clock = Clock(lambda reason: wire.send(grader, {"stuck": reason}))
    left = job["seconds"]
    wire.send(grader, {"started": True})
    for cell in job["cells"]:
        errors.clear()
        printed = Capped()
        shown: list = []
        worked = processor_time()
        try:
            if "asks" in cell:
                answer = eval(cell["asks"], shell.user_ns)
                asked = served.pop(cell["name"])
                at_work = threading.Event()
                # When the answer is not at work, the grader hangs up because it has its verdict.
                clock.start(lambda a=at_work, c=asked: "exercise" if a.is_set() and hung_up(c) else "")
                # Packing looks at tensors, too.
                with switches.neutral(), contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
                    serve(grader, cell["name"], answer, asked, at_work)
                printed = Capped()  # what an answer prints about its inputs is not shown
            else:
                clock.start(limit(min(job["cell_seconds"], left), job["clock"]))
                with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
                    with capture_output(stdout=False, stderr=False) as seen:
                        shell.run_cell(cell["source"], store_history=True)
                    shown = seen.outputs
        except (Exception, KeyboardInterrupt, SystemExit) as error:
            errors.append(f"{type(error).__name__}: {error}")
        late = clock.stop()
        if "asks" not in cell:  # answers have limits of their own
            left = max(0.0, left - (processor_time() - worked))
        record = {"cell": cell["id"], "text": printed.getvalue(), "late": late, "error": "\n".join(errors)[-TEXT:]}
        for output in shown:
            text = getattr(output, "data", {}).get("text/plain", "")[:TEXT]
            record["text"] = f"{record['text']}{text}\n"[:TEXT]
        wire.send(grader, record)
    wire.send(grader, {"whole": True})


class Forgetful(dict):
    """In place of IPython's own copies of all that is printed: with them, an endless print would fill the memory."""

    def __missing__(self, key: int) -> list:
        return []


class Capped(io.StringIO):
    """Keeps the first characters of what is printed."""

    def write(self, text: str) -> int:
        room = TEXT - self.tell()
        if room > 0:
            super().write(text[:room] + ("\n… (more was printed)\n" if len(text) > room else ""))
        return len(text)

    def fileno(self) -> int:
        """As in a kernel, for programs that a cell starts: what they print there is lost."""
        return 1


class Clock:
    """Interrupts a cell that takes too long, as the stop button does: again every second, as it may be caught.

    A cell that continues anyway ends the notebook, after a last word to the grader.
    """

    def __init__(self, last_word: Callable[[str], None]) -> None:
        self.over: Callable[[], str] | None = None
        self.late, self.last_word = "", last_word
        threading.Thread(target=self.run, daemon=True).start()

    def start(self, over: Callable[[], str]) -> None:
        """From now on, interrupt the main thread as soon as `over` gives a reason."""
        self.over, self.late = over, ""

    def stop(self) -> str:
        """Stop that. Returns the reason of the interruption; empty if there was none."""
        self.over = None
        return self.late

    def run(self) -> None:
        interrupted = None, 0
        while True:
            time.sleep(0.2)
            over = self.over
            try:
                reason = over() if over is not None else ""
            except MemoryError:  # the cell holds it all; some may be free in a moment
                continue
            if reason:
                self.late = self.late or reason
                interrupted = over, interrupted[1] + 1 if interrupted[0] is over else 1
                if interrupted[1] > INTERRUPTS:
                    self.last_word(self.late)
                    os._exit(1)
                # To the main thread itself, which may be asleep: a signal to this thread would not wake it.
                signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
                time.sleep(1)


def limit(seconds: float, clock: float) -> Callable[[], str]:
    """A function that says which limit is met from now on: "processor", "clock", or none: "".

    clock: times as many seconds may pass by the clock, since neighbors take the processor, too
    """
    worked, start = processor_time(), time.monotonic()

    def over() -> str:
        if time.monotonic() - start > clock * seconds:  # first, since it needs no memory
            return "clock"
        return "processor" if processor_time() - worked > seconds else ""

    return over


def processor_time() -> float:
    """Seconds of all processes in this sandbox, with those of their children that ended."""
    total = 0.0
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            total += sum(process.cpu_times()[:4])
    return total


def serve(grader: socket.socket, name: str, answer: Any, channel: socket.socket, at_work: threading.Event) -> None:
    """Let the grader ask the answer, until it hangs up. at_work: set while the answer is busy with a question."""
    if not can_be_asked(answer):
        document, block = wire.pack(answer)
        wire.send(grader, {"check": name, "value": document}, block)
        return
    wire.send(grader, {"check": name})
    with channel, contextlib.suppress(OSError, KeyboardInterrupt):  # interrupted after the grader has hung up
        answer_questions(answer, channel, at_work)


def can_be_asked(answer: Any) -> bool:
    """Tell whether the answer is a function or a class, or holds one. Other answers are plain data."""
    return callable(answer) or (isinstance(answer, (tuple, list)) and any(callable(part) for part in answer))


def answer_questions(answer: Any, channel: socket.socket, at_work: threading.Event | None = None) -> None:
    """Call the grader's probes with the answer until the grader hangs up. at_work: set during each call."""
    at_work = at_work or threading.Event()
    try:
        os.getcwd()
    except FileNotFoundError:  # a cell has deleted the folder, and much of Python asks for it
        os.chdir("/")
    with switches.neutral():
        while True:
            try:
                _, question = wire.receive(channel)
            except wire.Gone:
                return
            at_work.set()
            probe, args, options = pickle.loads(question)
            with eager():
                reply, block = reply_to(probe, answer, args, options)
            at_work.clear()
            wire.send(channel, reply, block)


@contextlib.contextmanager
def eager() -> Iterator[None]:
    """Let compiled functions run as they are written: the same results without a compiler's minutes.

    The compiler takes two seconds to import, and most answers need none: there, the first call sets it.
    """
    with contextlib.ExitStack() as stack:

        def stand() -> None:
            stack.enter_context(torch.compiler.set_stance("force_eager"))

        def compiled(*args: Any, **options: Any) -> Any:
            if "torch._dynamo" not in sys.modules:
                stand()
            return compile_(*args, **options)

        if "torch._dynamo" in sys.modules:
            stand()
        else:
            compile_ = torch.compile
            stack.enter_context(mock.patch("torch.compile", compiled))
        yield


def hung_up(channel: socket.socket) -> bool:
    """Tell whether the grader has closed its end, while something here is still at work."""
    try:
        return not channel.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
    except BlockingIOError:
        return False
    except OSError:
        return True


def reply_to(probe: Callable, answer: Any, args: tuple, options: dict) -> tuple[dict, bytes]:
    """What a probe returns or raises, as plain data."""
    try:
        document, block = wire.pack(probe(answer, *args, **options))
        return {"value": document}, block
    except verdict.NotAttempted:
        return {"not attempted": True}, b""
    except verdict.Incorrect as wrong:
        return {"incorrect": [wrong.problem, wrong.expected, wrong.yours, wrong.look]}, b""
    except verdict.AnswerRaised as raised:
        kinds = [kind.__name__ for kind in type(raised.error).__mro__]
        return {"raised": [kinds, str(raised.error)[:TEXT], line_of(raised.error)]}, b""
    except (Exception, SystemExit, KeyboardInterrupt) as error:
        return {"stumbled": f"{type(error).__name__}: {error}"[:TEXT]}, b""
