"""The cell magic `%%torchrun`: a notebook cell, run by PyTorch's elastic launcher in several processes.

What happens, in order:

1. The cell becomes a file. Its first line, the magic, becomes a comment: so line numbers are those of the cell.
2. The launcher behind torchrun starts the ranks, and each rank runs the file (launcher.py, rank.py).
3. Their lines go to one file and are shown at once, in the order in which they were printed.
4. If something goes wrong, the traceback of the rank that failed first is shown, in one piece.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import os
import re
import signal
import tempfile
import time
import traceback
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from torchcourse.distributed import launcher, stack_dumps
from torchcourse.distributed.network import loopback
from torchcourse.distributed.rank import CONSEQUENCE, Job
from torchcourse.errors import CourseError

LOOK_AGAIN = 0.05  # seconds between two looks at what the ranks have printed
ENDING = 60.0  # seconds that the launcher has to end all processes: it takes two, but the machine may be busy
# What libraries print below Python and is of no use in a notebook; of a stack, what called the cell.
CHATTER = re.compile(
    r"\[Gloo\] Rank \d+ is connected|socket\.cpp|TCPStore\.cpp|Redirects are currently not supported"
    r'|Extension modules:|File ".*/(multiprocessing|elastic|launcher|torchcourse/distributed)/|File "<string>"'
)


class Interrupted(KeyboardInterrupt):
    """The cell was interrupted. Shown without the lines of this package."""

    def _render_traceback_(self) -> list[str]:
        return ["KeyboardInterrupt: the cell was interrupted, all its processes were ended."]


def torchrun(line: str, cell: str) -> list[str]:
    """Run a cell in several processes: `%%torchrun --nproc-per-node 2 [--timeout 120] [name.py]`.

    Returns the lines that the ranks have printed, as they were shown.
    Raises CourseError if a rank fails or the time is up (with --expect-timeout: if it is not).
    """
    options = _options(line)
    name = options.name or "cell.py"
    source = f"# torchrun --nproc-per-node {options.nproc_per_node} {name}\n{cell}"
    _compile(source, name)
    with tempfile.TemporaryDirectory(prefix="torchrun-", ignore_cleanup_errors=True) as scratch:
        file = Path(options.name or f"{scratch}/{name}").resolve()
        file.write_text(source, encoding="utf-8")
        if options.name:
            print(f"Written to {name}")
        ranks, restarts = options.nproc_per_node, options.max_restarts
        job = Job(name, str(file), source, ranks, restarts, scratch, _environment(ranks))
        run = _Run(job, options.timeout, options.expect_timeout)
        run.run()
        return run.printed


def _options(line: str) -> argparse.Namespace:
    from IPython.core.magic_arguments import MagicArgumentParser  # scripts on a cluster have no IPython

    parser = MagicArgumentParser("%%torchrun")
    parser.add_argument("--nproc-per-node", "-n", type=int, required=True)
    parser.add_argument("--timeout", type=float, default=120.0)
    parser.add_argument("--max-restarts", type=int, default=0)
    parser.add_argument("--expect-timeout", action="store_true")
    parser.add_argument("name", nargs="?")
    options = parser.parse_args(line.split())
    if not 1 <= options.nproc_per_node <= 64:
        parser.error(f"--nproc-per-node {options.nproc_per_node} is not a number of processes from 1 to 64")
    if options.name and not options.name.endswith(".py"):
        parser.error(f"the file name {options.name} does not end in .py")
    return options


def _compile(source: str, name: str) -> None:
    """Find a syntax error before anything is started: each rank would show the same."""
    try:
        compile(source, name, "exec", dont_inherit=True)
    except SyntaxError as error:
        print("".join(traceback.format_exception_only(error)), end="")
        notebook_only = (error.text or "").lstrip().startswith(("%", "!"))
        hint = " Lines that begin with % or ! work in the notebook only." if notebook_only else ""
        raise CourseError(
            f"Python cannot read the cell in line {error.lineno}, so nothing was started.{hint}"
        ) from None


def _environment(ranks: int) -> dict[str, str]:
    """The variables of the ranks, before the launcher adds those that tell them apart."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    defaults = {
        "OMP_NUM_THREADS": str(max(1, cores // ranks)),  # all ranks on all cores would be in each other's way
        # After a restart the ranks would read the addresses of the ones that died, and wait for them forever.
        "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1",
    }
    # A site's choice of interface is for its nodes. Without one, gloo would look up the machine's name.
    inherited = {name: value for name, value in os.environ.items() if value and name != "NCCL_SOCKET_IFNAME"}
    return defaults | inherited | {"GLOO_SOCKET_IFNAME": loopback()}


class _Run:
    """One start of the launcher, and what is said at its end. What each rank does is read from its files."""

    def __init__(self, job: Job, timeout: float, expect_timeout: bool) -> None:
        self.job, self.timeout, self.expect_timeout = job, timeout, expect_timeout
        self.scratch, self.size = Path(job.scratch), job.ranks
        self.log = self.scratch / "launcher.log"
        self.log.touch()
        self.attempt = 0  # how often the launcher has started the ranks again
        self.shown: dict[Path, int] = {}  # bytes of each file that have been shown
        self.printed: list[str] = []

    def run(self) -> None:
        """Start, show what comes, wait for the end, explain it."""
        try:
            process = launcher.start(self.job)
            try:
                in_time = self._follow(process)
                where = "" if in_time else self._places()
            finally:
                _end(process)
        except KeyboardInterrupt:
            raise Interrupted from None
        self._show()
        if not in_time and not self._failures():
            self._late(where)
        elif len(self._having("done")) < self.size:
            self._explain()
        elif self.expect_timeout:
            raise CourseError("This cell was meant to run out of time (--expect-timeout), but all ranks finished.")

    def _follow(self, process: BaseProcess) -> bool:
        """Print what comes until the launcher ends. False when the time is up."""
        limit = math.inf  # until all ranks run: it is the launcher that takes its time, and no fault of the cell
        while process.is_alive():
            process.join(LOOK_AGAIN)
            self._show()
            if limit == math.inf and len(self._having("pid")) == self.size:
                limit = time.monotonic() + self.timeout
            if time.monotonic() > limit:
                return False
        return True

    def _show(self) -> None:
        """Print the lines that are new, and say when the launcher has started the ranks again, and why."""
        newest = max([0, *(int(file.stem.split("-")[0]) for file in self.scratch.glob("*-*.pid"))])
        while True:
            for line in self._new_lines(f"{self.attempt}.lines"):
                self.printed.append(line)
                print(line, flush=True)
            for rank in range(self.size):  # from below Python: processes of the cell, libraries in C++
                for line in self._new_lines(f"{self.attempt}-{rank}.raw"):
                    if line.strip() and not CHATTER.search(line):
                        print(f"[rank {rank}] {line}".rstrip(), flush=True)
            if self.attempt == newest:
                return
            why = self._cause()
            self.attempt += 1
            again = f"restart {self.attempt} of {self.job.max_restarts}"
            print(f"[torchrun] {why}: {again}, all {self.size} ranks start again", flush=True)

    def _new_lines(self, name: str) -> list[str]:
        """The whole lines of a file that have not been shown."""
        file = self.scratch / name
        if not file.exists():
            return []
        with open(file, "rb") as opened:
            opened.seek(self.shown.get(file, 0))
            new = opened.read()
        whole = new[: new.rfind(b"\n") + 1]
        self.shown[file] = self.shown.get(file, 0) + len(whole)
        return whole.decode("utf-8", "replace").split("\n")[:-1]

    # ------------------------------ what went wrong

    def _file(self, rank: int, kind: str) -> Path:
        """What a rank of this attempt has written (rank.py)."""
        return self.scratch / f"{self.attempt}-{rank}.{kind}"

    def _having(self, kind: str) -> list[int]:
        """The ranks that have written such a file."""
        return [rank for rank in range(self.size) if self._file(rank, kind).exists()]

    def _failures(self) -> list[dict[str, Any]]:
        """The exceptions of this attempt, the first one first.

        A lost connection is never the cause: a rank that closes its group on the way out of an exception lets the
        others fail before it has failed itself.
        """
        found = [json.loads(self._file(rank, "failed").read_text("utf-8")) for rank in self._having("failed")]
        return sorted(found, key=lambda failure: (bool(CONSEQUENCE.search(failure["message"])), failure["time"]))

    def _death(self) -> tuple[int, int] | None:
        """The rank that was gone at once, without an exception, and its exit code.

        The launcher writes down who ended first, once for each attempt that failed.
        """
        ended = re.findall(r"failed \(exitcode: (-?\d+)\) local_rank: (\d+)", self.log.read_text("utf-8", "replace"))
        if len(ended) <= self.attempt:
            return None
        code, rank = map(int, ended[self.attempt])
        return (rank, code) if rank in set(self._having("pid")) - set(self._having("failed")) else None

    def _cause(self) -> str:
        """Who ended this attempt, in a few words."""
        if death := self._death():
            return f"rank {death[0]} ended without an exception"
        if failures := self._failures():
            return f"rank {failures[0]['rank']} failed with {_short(failures[0])}"
        return "a rank died"

    def _explain(self) -> None:
        failures = self._failures()
        if death := self._death():  # the errors of the others follow from it
            rank, code = death
            why = f"exit code {code}" if code >= 0 else f"signal {signal.Signals(-code).name}"
            memory = " (perhaps for want of memory)" if code == -signal.SIGKILL else ""
            raise CourseError(f"Rank {rank} ended without an exception: {why}{memory}." + self._others(rank))
        if not failures:
            print("\n".join(self.log.read_text("utf-8", "replace").strip().splitlines()[-15:]))
            raise CourseError("The launcher could not run the cell: its own last lines are above.")
        first = failures[0]
        print(f"\nRank {first['rank']} failed first:\n{first['traceback'].rstrip()}")
        what = (f" in line {first['line']}" if first["line"] else "") + f" with {_short(first)}."
        kinds = {(failure["type"], failure["line"], failure["message"]) for failure in failures}
        if len(failures) == self.size > len(kinds) == 1:
            raise CourseError(f"All {self.size} ranks failed{what}")
        raise CourseError(f"Rank {first['rank']} failed{what}" + self._others(first["rank"]))

    def _others(self, blamed: int) -> str:
        """What became of the other ranks, in a sentence each."""
        text = ""
        for failure in self._failures():
            if failure["rank"] != blamed:
                text += f" After that, rank {failure['rank']} failed with {_short(failure)}."
        ended = {blamed, *self._having("failed"), *self._having("done")}
        stopped = [str(rank) for rank in range(self.size) if rank not in ended]
        if stopped:
            text += f" torchrun then stopped rank{'s' if len(stopped) > 1 else ''} {', '.join(stopped)}."
        return text

    def _places(self) -> str:
        """Where each rank is right now."""
        started = self._having("pid")
        running = [rank for rank in started if rank not in self._having("done") + self._having("failed")]
        numbers = [json.loads(self._file(rank, "pid").read_text())["pid"] for rank in running]
        files = [self._file(rank, "stack") for rank in running]
        stacks = stack_dumps.stacks(dict(zip(numbers, files, strict=True)), r'rank\.py", line \d+ in run\n')
        where = dict.fromkeys(range(self.size), "had not started yet") | dict.fromkeys(started, "had finished")
        where |= {rank: f"was {self._place(stack)}" for rank, stack in zip(running, stacks, strict=True)}
        return "\n".join(f"rank {rank} {said}" for rank, said in where.items())

    def _place(self, stack: str) -> str:
        place = stack_dumps.place(stack, lambda file: file == self.job.name)
        if place is None:
            return "not yet in your code"
        _, number, call = place
        text = self.job.source.splitlines()[number - 1].strip()
        return f"in line {number}: {text}" + (f"   (waiting in `{call}`)" if call and call not in text else "")

    def _late(self, where: str) -> None:
        print(f"\nWhen the time was up\n{where}")
        sentence = (
            f"The cell was stopped after {self.timeout:g} seconds. Does one rank wait for another that never comes? "
            "If it only needs longer, give it --timeout."
        )
        if not self.expect_timeout:
            raise CourseError(sentence)
        print(f"\n{sentence}")


def _end(process: BaseProcess) -> None:
    """Have the launcher end, and all that it has started."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(process.pid, launcher.STOP)
    process.join(ENDING)
    process.kill()


def _short(failure: dict[str, Any]) -> str:
    text = f"{failure['type']}: {failure['message']}".strip().splitlines()[0].removesuffix(":")
    text = re.sub(r"(Connection \w+ by peer).*", r"\1", text)  # then come ports and advice
    return text if len(text) < 200 else text[:200].rstrip() + " …"
