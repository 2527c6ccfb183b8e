"""The cell magic `%%torchrun`: a notebook cell, run by PyTorch's elastic launcher in several processes.

What happens, in order:

1. The cell becomes a file. Its first line, the magic, becomes a comment: so line numbers are those of the cell.
2. A watcher starts the launcher behind torchrun, which starts the ranks, and each rank runs the file (watcher.py,
   launcher.py, rank.py). On Linux, all of them are forked from a process that has imported PyTorch, so only the first
   cell waits for that (warm.py).
3. Their lines go to one file and are shown at once, in the order in which they were printed.
4. If something goes wrong, the traceback of the rank that failed first is shown, in one piece.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
import warnings
from pathlib import Path
from typing import Any, BinaryIO, NoReturn

from torchcourse.distributed import places, warm
from torchcourse.distributed.network import loopback
from torchcourse.distributed.rank import CONSEQUENCE, shorten
from torchcourse.errors import CourseError

HERE = Path(__file__).parent
START_LIMIT = 120.0  # seconds until all ranks run: it is torchrun that takes them, and no fault of the cell
AFTER_FAILURE = 15.0  # seconds that torchrun has to stop the other ranks; then we do it
LOOK_AGAIN = 0.05  # seconds between two looks at what the ranks have printed
ENDING = 60.0  # seconds that the watcher has to end all processes: it takes two, but the machine may be busy
# What libraries print below Python and is of no use in a notebook.
CHATTER = re.compile(r"\[Gloo\] Rank \d+ is connected|socket\.cpp|TCPStore\.cpp|Redirects are currently not supported")


class Interrupted(KeyboardInterrupt):
    """The cell was interrupted. Shown without the lines of this package."""

    def _render_traceback_(self) -> list[str]:
        return ["KeyboardInterrupt: the cell was interrupted, all its processes were ended."]


def torchrun(line: str, cell: str) -> None:
    """Run a cell in several processes: `%%torchrun --nproc-per-node 2 [--timeout 120] [name.py] [-- arguments]`.

    Raises CourseError if a rank fails or the time is up (with --expect-timeout: if it is not).
    """
    options = _options(line)
    name = options.name or "cell.py"
    first = f"# torchrun --nproc-per-node {options.nproc_per_node} {name}"
    source = f"{first}\n{cell}"
    _compile(source, name)
    if options.name:
        Path(name).write_text(source, encoding="utf-8")
        print(f"Written to {name}")
    scratch = Path(tempfile.mkdtemp(prefix="torchrun-"))
    try:
        file = Path(name).resolve() if options.name else scratch / name
        if not options.name:
            file.write_text(source, encoding="utf-8")
        _Run(options, name, file, source, scratch).run()
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise CourseError(
            f"%%torchrun: {message}. For example: `%%torchrun --nproc-per-node 2 --timeout 120`, "
            "with `name.py` at the end if the file should be kept."
        )


def _options(line: str) -> argparse.Namespace:
    try:
        words = shlex.split(line)
    except ValueError as problem:
        raise CourseError(f"%%torchrun: {problem} in `{line}`.") from None
    words, arguments = (words[: words.index("--")], words[words.index("--") + 1 :]) if "--" in words else (words, [])
    parser = _Parser(prog="%%torchrun", add_help=False)
    parser.add_argument("--nproc-per-node", "--nproc_per_node", "-n", type=int, required=True)
    parser.add_argument("--timeout", type=float, default=120.0)
    parser.add_argument("--max-restarts", "--max_restarts", type=int, default=0)
    parser.add_argument("--expect-timeout", action="store_true")
    parser.add_argument("name", nargs="?")
    options = parser.parse_args(words)
    if not 1 <= options.nproc_per_node <= 64:
        parser.error(f"--nproc-per-node {options.nproc_per_node} is not a number of processes from 1 to 64")
    if options.max_restarts < 0 or options.timeout <= 0:
        parser.error("--max-restarts and --timeout are not negative")
    if options.name and not options.name.endswith(".py"):
        parser.error(f"the file name {options.name} does not end in .py")
    options.arguments = arguments
    return options


def _compile(source: str, name: str) -> None:
    """Find a syntax error before anything is started: each rank would show the same."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the ranks say it
            compile(source, name, "exec", dont_inherit=True)
    except (SyntaxError, ValueError) as error:
        print("".join(traceback.format_exception_only(error)), end="")
        line = f" in line {error.lineno}" if isinstance(error, SyntaxError) and error.lineno else ""
        text = (getattr(error, "text", "") or "").lstrip()
        hint = " Lines that begin with % or ! work in the notebook only." if text.startswith(("%", "!")) else ""
        raise CourseError(f"Python cannot read the cell{line}, so nothing was started.{hint}") from None


class _Run:
    """One start of the launcher, from its job to what is said at the end."""

    def __init__(self, options: argparse.Namespace, name: str, file: Path, source: str, scratch: Path) -> None:
        self.options, self.name, self.scratch = options, name, scratch
        self.lines = source.splitlines()
        self.size = options.nproc_per_node
        self.attempt = 0  # how often the launcher has started the ranks again
        self.shown: dict[Path, int] = {}  # bytes of each file that have been shown
        job = {"scratch": str(scratch), "name": name, "file": str(file), "path": [p for p in sys.path if p]}
        job |= {"ranks": self.size, "max_restarts": options.max_restarts, "arguments": options.arguments}
        (scratch / "job.json").write_text(json.dumps(job), encoding="utf-8")

    # ------------------------------ the time while it runs

    def run(self) -> None:
        """Start, show what comes, wait for the end, explain it."""
        if os.name != "posix":
            raise CourseError("%%torchrun needs Linux or macOS: on Windows use WSL, or a hub.")
        with open(self.scratch / "launcher.log", "wb") as log:
            process = self._start(log)
        where = None
        try:
            if not self._follow(process):
                where = self._places()
        except KeyboardInterrupt:
            raise Interrupted from None
        finally:
            self._end(process)
        self._show()
        if where is not None and not self._failures():
            self._late(where)
        elif process.returncode == 0 and not self._failures():
            if self.options.expect_timeout:
                raise CourseError("This cell was meant to run out of time (--expect-timeout), but all ranks finished.")
        else:
            self._explain()

    def _start(self, log: BinaryIO) -> subprocess.Popen | warm.Forked:
        """Start the watcher, and below it the launcher: forked from the warm process, where that is possible."""
        if warm.POSSIBLE:
            return warm.start(self.scratch, self._environment(), log)
        launcher = [sys.executable, str(HERE / "launcher.py"), str(self.scratch / "job.json")]
        return subprocess.Popen(
            [sys.executable, str(HERE / "watcher.py"), str(self.scratch), *launcher],
            stdin=subprocess.PIPE,  # closed, even by our death, it makes the watcher end everything
            stdout=log,
            stderr=log,
            env=self._environment(),
            start_new_session=True,  # so that the watcher outlives a kernel that is killed with its whole group
            bufsize=0,
        )

    def _environment(self) -> dict[str, str]:
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        defaults = {
            "OMP_NUM_THREADS": str(max(1, cores // self.size)),  # all ranks on all cores would be in each other's way
            # After a restart the ranks would read the addresses of the ones that died, and wait for them forever.
            "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1",
        }
        # Gloo would look up the machine's name, too. A site's choice of interface is for its nodes.
        fixed = {"PYTHONUTF8": "1", "GLOO_SOCKET_IFNAME": loopback()}
        # A notebook inside a job must not pass on its own identity.
        outside = {"RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "GROUP_RANK"}
        outside |= {"NCCL_SOCKET_IFNAME"}
        inherited = {key: value for key, value in os.environ.items() if key not in outside}
        return {key: value for key, value in {**defaults, **inherited, **fixed}.items() if value}

    def _follow(self, process: subprocess.Popen | warm.Forked) -> bool:
        """Print what comes until the watcher ends. False when the time is up."""
        limit = time.monotonic() + max(self.options.timeout, START_LIMIT)
        started, failed_at = False, None
        while process.poll() is None:
            time.sleep(LOOK_AGAIN)
            self._show()
            if not started and len(list(self.scratch.glob("0-*.pid"))) == self.size:
                started, limit = True, time.monotonic() + self.options.timeout
            if time.monotonic() > limit:
                return False
            if self.attempt == self.options.max_restarts and self._failures():
                failed_at = failed_at or time.monotonic()
                if time.monotonic() > failed_at + AFTER_FAILURE:
                    break  # a rank that the launcher cannot stop
        return True

    def _end(self, process: subprocess.Popen | warm.Forked) -> None:
        with contextlib.suppress(BrokenPipeError):  # it may have ended by itself
            process.stdin.write(b"\n")
        process.stdin.close()
        try:
            process.wait(ENDING)
        except subprocess.TimeoutExpired:
            process.kill()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(ENDING)

    def _show(self) -> None:
        """Print the lines that are new, and say when the launcher has started the ranks again, and why."""
        newest = max([0, *(int(file.stem.split("-")[0]) for file in self.scratch.glob("*-*.pid"))])
        while True:
            for line in self._new_lines(self.scratch / f"{self.attempt}.lines"):
                print(line, flush=True)
            for rank in range(self.size):  # from below Python: processes of the cell, libraries in C++
                for line in self._new_lines(self.scratch / f"{self.attempt}-{rank}.raw"):
                    if line.strip() and not CHATTER.search(line):
                        print(f"[rank {rank}] {line}".rstrip(), flush=True)
            if self.attempt == newest:
                return
            why = self._cause()
            self.attempt += 1
            again = f"restart {self.attempt} of {self.options.max_restarts}"
            print(f"[torchrun] {why}: {again}, all {self.size} ranks start again", flush=True)

    def _new_lines(self, file: Path) -> list[str]:
        """The whole lines of a file that have not been shown."""
        if not file.exists():
            return []
        with open(file, "rb") as opened:
            opened.seek(self.shown.get(file, 0))
            new = opened.read()
        whole = new[: new.rfind(b"\n") + 1]
        self.shown[file] = self.shown.get(file, 0) + len(whole)
        return whole.decode("utf-8", "replace").split("\n")[:-1]

    # ------------------------------ what went wrong

    def _cause(self) -> str:
        """Who ended this attempt, in a few words."""
        failures = self._failures()
        if failures and not CONSEQUENCE.search(failures[0]["message"]):
            return f"rank {failures[0]['rank']} failed with {_short(failures[0])}"
        # One is gone without a word: the launcher writes down which, once for each attempt that failed.
        log = (self.scratch / "launcher.log").read_text("utf-8", "replace")
        ended = re.findall(r"failed \(exitcode: -?\d+\) local_rank: (\d+)", log)
        return f"rank {ended[self.attempt]} ended without an exception" if len(ended) > self.attempt else "a rank died"

    def _failures(self) -> list[dict[str, Any]]:
        """The exceptions of this attempt, the first one first.

        A lost connection is never the cause: a rank that closes its group on the way out of an exception lets the
        others fail before it has failed itself.
        """
        found = []
        for file in self.scratch.glob(f"{self.attempt}-*.failed"):
            found.append({"rank": int(file.stem.split("-")[1]), **json.loads(file.read_text(encoding="utf-8"))})
        return sorted(found, key=lambda failure: (bool(CONSEQUENCE.search(failure["message"])), failure["time"]))

    def _deaths(self) -> dict[int, int]:
        """Exit codes of ranks that ended without a word, as the launcher has seen them."""
        file = self.scratch / "exit_codes.json"
        codes = json.loads(file.read_text()) if file.exists() else {}
        spoke = {failure["rank"] for failure in self._failures()}
        return {int(rank): code for rank, code in codes.items() if int(rank) not in spoke}

    def _explain(self) -> None:
        failures, deaths = self._failures(), self._deaths()
        if deaths:  # a rank that is gone at once is the cause, the errors of the others follow from it
            rank, code = next(iter(deaths.items()))
            file = self.scratch / f"{self.attempt}-{rank}.crash"
            if not file.exists():  # rank.py makes it before anything else
                self._show_log()
                raise CourseError(f"Rank {rank} ended before your cell began. The end of the launcher's log is above.")
            if crash := file.read_text("utf-8", "replace"):
                print(shorten(crash.partition("\nExtension modules:")[0]).rstrip())
            why = f"exit code {code}" if code >= 0 else f"signal {_signal(-code)}"
            memory = " (perhaps for want of memory)" if code == -signal.SIGKILL else ""
            sentence = f"Rank {rank} ended without an exception: {why}{memory}."
            raise CourseError(sentence + self._others({rank}))
        if not failures:
            self._show_log()
            raise CourseError("The launcher could not run the cell: its own last lines are above.")
        first = failures[0]
        print(f"\nRank {first['rank']} failed first:\n{first['traceback'].rstrip()}")
        line = f" in line {first['line']}" if first["line"] else ""
        same = [f for f in failures if (f["type"], f["line"], f["message"]) == tuple(first[k] for k in KEYS)]
        if len(same) == self.size > 1:
            raise CourseError(f"All {self.size} ranks failed{line} with {_short(first)}.")
        raise CourseError(f"Rank {first['rank']} failed{line} with {_short(first)}." + self._others({first["rank"]}))

    def _show_log(self) -> None:
        log = (self.scratch / "launcher.log").read_text("utf-8", "replace").strip().splitlines()
        print("\n".join(log[-15:]))

    def _others(self, blamed: set[int]) -> str:
        """What became of the other ranks, in a sentence each."""
        failed = {failure["rank"]: failure for failure in self._failures() if failure["rank"] not in blamed}
        done = {rank for rank in range(self.size) if (self.scratch / f"{self.attempt}-{rank}.done").exists()}
        stopped = [rank for rank in range(self.size) if rank not in blamed | done | set(failed)]
        text = "".join(f" After that, rank {rank} failed with {_short(failure)}." for rank, failure in failed.items())
        if stopped:
            text += f" torchrun then stopped {_ranks(stopped)}."
        return text

    def _places(self) -> str:
        """Where each rank is right now."""
        files = {rank: self.scratch / f"{self.attempt}-{rank}.pid" for rank in range(self.size)}
        running = {rank: file for rank, file in files.items() if file.exists() and not _done(file)}
        processes = {json.loads(file.read_text())["pid"]: file.with_suffix(".stack") for file in running.values()}
        stacks = dict(zip(running, places.stacks(processes, r'rank\.py", line \d+ in run\n'), strict=True))
        said = []
        for rank, file in files.items():
            if rank in running:
                said.append(f"rank {rank} was {self._place(stacks[rank])}")
            else:
                said.append(f"rank {rank} had {'finished' if file.exists() else 'not started yet'}")
        return "\n".join(said)

    def _place(self, stack: str) -> str:
        place = places.place(stack, lambda file: file == self.name)
        if place is None:
            return "not yet in your code"
        _, number, call = place
        text = self.lines[number - 1].strip() if number <= len(self.lines) else ""
        return f"in line {number}: {text}" + (f"   (waiting in `{call}`)" if call and call not in text else "")

    def _late(self, where: str) -> None:
        print(f"\nWhen the time was up\n{where}")
        seconds = f"{self.options.timeout:g} seconds"
        sentence = (
            f"The cell was stopped after {seconds}. Does one rank wait for another that never comes? "
            "If it only needs longer, give it --timeout."
        )
        if not self.options.expect_timeout:
            raise CourseError(sentence)
        print(f"\n{sentence}")


KEYS = ("type", "line", "message")


def _done(pid_file: Path) -> bool:
    return pid_file.with_suffix(".done").exists() or pid_file.with_suffix(".failed").exists()


def _short(failure: dict[str, Any]) -> str:
    message = failure["message"].strip().splitlines()
    text = f"{failure['type']}: {message[0]}" if message else failure["type"]
    if CONSEQUENCE.search(text):
        text = re.sub(r"(Connection \w+ by peer).*", r"\1", text)  # then come ports and advice
    return text if len(text) < 200 else text[:200].rstrip() + " …"


def _ranks(ranks: list[int]) -> str:
    return f"rank {ranks[0]}" if len(ranks) == 1 else f"ranks {', '.join(map(str, ranks))}"


def _signal(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return str(number)
