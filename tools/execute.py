"""Execute one notebook through papermill and measure what it took.

papermill runs in a thread of its own; the one that calls watches the kernel. So it is free to measure memory, to end a
notebook that hangs, and to take a Ctrl-C, or the word of the main thread that there was one.

The kernel is not our child but that of a small process, the watcher, which ends the kernel and everything that it
started: when we ask it to, and when we are gone, even by `kill -9`.
"""

import logging
import math
import os
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import psutil
from ipykernel.kernelspec import get_kernel_dict
from jupyter_client.kernelspec import KernelSpec
from jupyter_client.manager import AsyncKernelManager
from jupyter_core.utils import ensure_event_loop
from papermill import execute_notebook
from papermill.engines import NBClientEngine, NotebookExecutionManager, papermill_engines
from papermill.exceptions import PapermillExecutionError

from tools.course import ROOT

WATCHER = ROOT / "src" / "torchcourse" / "distributed" / "watcher.py"
SAMPLE_EVERY, AT_MOST = 0.2, 1.0  # seconds between two looks at the kernel; more where looking takes long
PATIENCE = 30  # seconds that the watcher has to end everything, on a busy machine; then we do what we can
MIB = 2**20
LOWEST = 19 if os.name == "posix" else psutil.IDLE_PRIORITY_CLASS  # priority


class WritesAtTheEnd(NBClientEngine):
    """papermill's own engine writes the whole notebook before and after each cell: a tenth of a core's time."""

    @classmethod
    def execute_managed_notebook(cls, notebook: NotebookExecutionManager, kernel_name: str, **options: Any) -> None:
        """Execute the cells. papermill writes the notebook when this is over, also if the kernel has died."""
        target, notebook.output_path = notebook.output_path, None
        try:
            super().execute_managed_notebook(notebook, kernel_name, **options)
        finally:
            notebook.output_path = target


papermill_engines.register(WritesAtTheEnd.__name__, WritesAtTheEnd)


@dataclass
class Execution:
    """What one execution took, and how it ended."""

    seconds: float = 0.0  # wall time, from before the kernel starts until it has stopped
    cpu_seconds: float = 0.0  # processor time of the kernel and its children, all cores added
    mib: float = 0.0  # peak memory of the kernel and its children
    timed_out: bool = False  # it was killed, see the limits of `execute`
    cell: int | None = None  # index of the last cell that was started
    died: str | None = None  # why the notebook did not get to its end, if no cell of it raised
    log: str = ""  # what the kernel wrote to its own terminal: the last words of a crash


def execute(
    source: Path,
    target: Path,
    timeout: float,
    work: float = float("inf"),
    python: Sequence[str] = (sys.executable,),
    interrupted: threading.Event | None = None,
    gently: bool = False,
) -> Execution:
    """Execute the notebook `source` in its own folder and write the result, outputs or error included, to `target`.

    timeout: seconds of wall-clock time after which the kernel and its children are killed.
    work: the same in seconds of work: wall-clock or processor time, whichever is less. So neither a busy machine nor
        the use of several cores counts against the notebook.
    python: the command that starts the kernel's Python, be it in another environment or in a sandbox. By default the
        kernel is the Python that runs this function, whatever kernel the notebook names.
    gently: take only the processor time that others leave.
    interrupted: set by another thread, it has the effect of a Ctrl-C, which only the main thread gets.
    Raises KeyboardInterrupt on Ctrl-C, after the kernel was stopped.
    """
    logging.getLogger("papermill").setLevel(logging.CRITICAL)  # the report says what went wrong, once
    target.parent.mkdir(parents=True, exist_ok=True)
    run = Execution()
    with tempfile.TemporaryFile("w+") as log, tempfile.TemporaryDirectory(prefix="kernel-") as scratch:
        kernel = _Kernel(log, python, scratch, gently)

        def started(cell: dict, cell_index: int) -> None:
            run.cell = cell_index

        def papermill() -> None:
            try:
                execute_notebook(
                    source,
                    target,
                    engine_name=WritesAtTheEnd.__name__,
                    kernel_name="python3",
                    progress_bar=False,
                    start_timeout=math.ceil(timeout),  # on a busy machine, a kernel starts late
                    # Straight to nbclient. Not papermill's `cwd`: that would move this process as well.
                    resources={"metadata": {"path": str(source.parent)}},
                    kernel_manager_class=kernel.manager,
                    on_cell_start=started,
                )
            except PapermillExecutionError:
                pass  # the error is in the executed notebook, under its cell
            except BaseException as error:
                run.died = f"{type(error).__name__}: {error}".strip(": ")
            finally:
                ensure_event_loop().close()  # nbclient opened one for this thread

        start = time.monotonic()
        thread = threading.Thread(target=papermill, name=f"papermill {source.name}", daemon=True)
        with kernel.stopped_at_the_end(thread):
            thread.start()
            pause = SAMPLE_EVERY
            while thread.is_alive():
                thread.join(pause)
                if interrupted and interrupted.is_set():
                    raise KeyboardInterrupt
                looked = time.monotonic()
                cpu_seconds, mib = kernel.sample()
                # Looking holds the kernel up, for longer if it has CUDA's many pages: a tenth of the time is enough.
                pause = min(AT_MOST, max(SAMPLE_EVERY, 10 * (time.monotonic() - looked)))
                run.cpu_seconds, run.mib = max(run.cpu_seconds, cpu_seconds), max(run.mib, mib)
                elapsed = time.monotonic() - start
                if (elapsed > timeout or min(elapsed, run.cpu_seconds) > work) and not run.timed_out:
                    run.timed_out = True
                    kernel.end()
        run.seconds = time.monotonic() - start
        log.seek(0)
        run.log = log.read()
    return run


class _Kernel:
    """The kernel of one execution, its watcher, and the processes that the kernel started."""

    def __init__(self, log: IO[str], python: Sequence[str], scratch: str, gently: bool) -> None:
        self.log, self.python, self.scratch, self.gently = log, python, scratch, gently
        self.wrapped = len(python) > 1  # whether another program starts the Python, and stays above it
        self.watcher: psutil.Process | None = None
        self.children: set[psutil.Process] = set()  # of the watcher: the kernel, and everything below it
        self.theirs, self.ours = os.pipe()  # the watcher reads what we say, and notices when we are gone

    @property
    def manager(self) -> type[AsyncKernelManager]:
        """A kernel manager for nbclient that starts our interpreter below a watcher."""
        kernel = self
        spec = get_kernel_dict()
        spec["argv"][:1] = [sys.executable, str(WATCHER), self.scratch, *self.python]

        class Manager(AsyncKernelManager):
            # A notebook may name a kernel that exists on its author's machine only, and a "python3" in the user's
            # Jupyter folder may belong to another environment. Ours is always the one that was asked for.
            kernel_spec = KernelSpec(**spec)

            def __init__(self, **options: object) -> None:
                options["connection_file"] = f"{kernel.scratch}/connection.json"
                if kernel.wrapped:  # a sandbox may have no network: files are sockets that lead into it anyway
                    options |= {"transport": "ipc", "ip": f"{kernel.scratch}/socket"}
                super().__init__(**options)

            async def start_kernel(self, **options: object) -> None:
                # What a kernel says on its terminal is noise ("running over TCP"), until it crashes: keep it.
                await super().start_kernel(**options, stdin=kernel.theirs, stdout=kernel.log, stderr=kernel.log)
                kernel.watcher = psutil.Process(self.provisioner.pid)
                if kernel.gently:  # before it starts anything
                    _yield_to_others(kernel.watcher)

        return Manager

    def tree(self) -> list[psutil.Process]:
        """The kernel and all its living children."""
        with suppress(psutil.NoSuchProcess):
            self.children.update(self.watcher.children(recursive=True) if self.watcher else ())
        return [p for p in self.children if p.is_running()]

    def sample(self) -> tuple[float, float]:
        """Processor seconds spent so far and MiB held now."""
        cpu_seconds = held = 0.0
        tree = self.tree()
        for process in tree:
            with suppress(psutil.Error):  # it may end between two looks
                held += process.memory_info().rss if len(tree) == 1 + self.wrapped else _memory(process)
                cpu_seconds += sum(process.cpu_times()[:4])  # user, system, and both of children that have ended
        return cpu_seconds, held / MIB

    def end(self) -> None:
        """Have the watcher end the kernel and all its children, be it that they have not started yet."""
        with suppress(OSError):  # it has ended by itself
            os.write(self.ours, b"\n")

    @contextmanager
    def stopped_at_the_end(self, thread: threading.Thread) -> Iterator[None]:
        """Leave no process behind, whatever happens: a Ctrl-C, or a notebook that forgot its workers."""
        try:
            yield
        finally:
            self.end()
            if thread.ident:
                thread.join()
            _, stuck = psutil.wait_procs([self.watcher] if self.watcher else [], timeout=PATIENCE)
            for process in stuck + self.tree():
                with suppress(psutil.NoSuchProcess):
                    process.kill()
            os.close(self.ours)
            os.close(self.theirs)


def _yield_to_others(process: psutil.Process) -> None:
    """Give a process, and what it will start, the lowest priority."""
    process.nice(LOWEST)
    # On Linux, sessions may be groups that share the processor fairly, however nice their members are.
    with suppress(OSError):
        Path(f"/proc/{process.pid}/autogroup").write_text(str(LOWEST))


def _memory(process: psutil.Process) -> int:
    """Bytes that a process holds, without counting anything twice.

    The workers of a DataLoader are forks of the kernel and share most of its pages. Resident size (RSS) counts a
    shared page once in every process, so the sum over processes is far too large. The proportional size (PSS) divides
    it among those that share it, so the sum is right. Only Linux tells it, and it takes its time: it walks through all
    pages, and any process that needs a new page has to wait. So a kernel without children is asked for its RSS.
    """
    try:
        return process.memory_full_info().pss
    except (AttributeError, OSError, psutil.Error):  # a sandbox may have no such file
        return process.memory_info().rss
