"""Checks in several processes: run an answer as the ranks of a real process group, and learn what happened on each.

    outcome = ranks.run(average, gradients, world_size=2)
    outcome.values           # what each rank returned
    outcome[1].printed       # what rank 1 printed

The processes are real ones with a gloo group between them, on the CPU. They come from a server process that has
imported PyTorch once and makes ranks by forking (rank_server.py), so that a run takes a fraction of a second. Functions
travel by value: one that was defined in a notebook exists in no file that another process could import.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import linecache
import os
import subprocess
import sys
import threading
import time
import types
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from multiprocessing import connection
from pathlib import Path
from typing import Any, NamedTuple

from labcheck import answer as answers
from labcheck import collectives
from labcheck.answer import attempted, is_students
from labcheck.verdict import UNSAID, AnswerRaised, Incorrect, NotAttempted, NotHere, wrong_if
from torchcourse import place
from torchcourse.errors import CourseError

SECONDS = 120.0  # for a check with ranks: the first one of a session starts the server, which makes the processes
TIME_LIMIT = 60.0  # seconds for all ranks together, from the moment when the group is ready
PATIENCE = 300.0  # seconds beyond it until the server itself counts as lost: it starts processes, and ends them


class Request(NamedTuple):
    """What the server is asked for."""

    world_size: int
    payload: bytes  # the function and its arguments
    cells: dict[str, list[str]]  # the source of notebook cells
    timeout: float
    folder: str | None
    seed: int
    path: list[str]
    modules: list[str]  # to import once, before there are ranks


# ---------------------------------------- what came out


@dataclass(frozen=True)
class Place:
    """Where a rank was: the student's own line, and the call into PyTorch that it had not come back from."""

    file: str
    number: int
    line: str
    call: str | None = None  # for example "all_reduce"

    def __str__(self) -> str:
        call = f"`{self.call}`, " if self.call else ""
        return f"{call}line {self.number}: {self.line}" if self.line else f"{call}line {self.number}"


@dataclass(frozen=True)
class Raised:
    """An exception on a rank. The exception itself stayed there: not every one can travel."""

    type: str
    message: str
    place: Place | None  # the innermost line of the student's own
    by_hand: bool = False  # a `raise` statement of the student's

    def __str__(self) -> str:
        return f"{self.type}: {self.message}".rstrip(": ")


@dataclass
class Rank:
    """One rank of a run.

    status: "returned" · "raised" · "died" (the process ended in the middle) · "waiting" (in a call that the other ranks
    do not answer) · "running" (when the time was up) · "stopped" (because another rank had failed).
    """

    rank: int
    status: str
    value: Any = None
    raised: Raised | None = None
    place: Place | None = None  # where it was, if it neither returned nor raised
    trouble: list[dict[str, Any]] | None = None  # what each rank was about to do, if it met others in the wrong call
    exit_code: int | None = None
    printed: str = ""
    errors: str = ""  # what it wrote to stderr: its own lines and PyTorch's
    wrote: tuple[str, ...] = ()  # files that it opened for writing, or saved, relative to the folder of the run


@dataclass
class Outcome:
    """What a run came to; `outcome[r]` is rank r."""

    ranks: list[Rank]
    seconds: float  # the limit that the run had

    def __getitem__(self, rank: int) -> Rank:
        return self.ranks[rank]

    def __iter__(self) -> Iterator[Rank]:
        return iter(self.ranks)

    def __len__(self) -> int:
        return len(self.ranks)

    @property
    def ok(self) -> bool:
        """True if every rank returned."""
        return all(rank.status == "returned" for rank in self.ranks)

    @property
    def values(self) -> list[Any]:
        """What each rank returned; None for a rank that did not."""
        return [rank.value for rank in self.ranks]

    @property
    def failed(self) -> Rank | None:
        """The rank to blame: the first that raised or died, else the first that waited or was still running."""
        order = ("raised", "died", "waiting", "running")
        return min(
            (rank for rank in self if rank.status in order), key=lambda rank: order.index(rank.status), default=None
        )

    def sentence(self) -> str:
        """What went wrong in one or two sentences, "" if nothing did."""
        failed = self.failed
        if failed is None:
            return ""
        if failed.raised:
            return f"Rank {failed.rank} raised {failed.raised}"
        if failed.status == "died":
            return f"The process of rank {failed.rank} ended in the middle (exit code {failed.exit_code})."
        if failed.status == "running":
            return f"Rank {failed.rank} was still running after {self.seconds:g} seconds and was stopped."
        if failed.trouble:
            return collectives.sentence(failed.trouble)
        calls = ", ".join(f"rank {rank.rank} in {rank.place}" for rank in self.ranks if rank.status == "waiting")
        return f"After {self.seconds:g} seconds ranks still wait for others: {calls}."

    def details(self) -> str:
        """What each rank was about to do, or where it was, with its line."""
        failed = self.failed
        if failed is None or not failed.trouble:
            return f"rank {failed.rank}, {failed.place}" if failed and failed.place else ""
        busy = [f"rank {rank.rank} in {rank.place}" for rank in self.ranks if rank.status == "running" and rank.place]
        return "; ".join([collectives.details(failed.trouble), *busy])


# ---------------------------------------- what judges call


def run(
    function: Callable,
    *args: Any,
    world_size: int = 2,
    timeout: float = TIME_LIMIT,
    folder: str | os.PathLike | None = None,
    seed: int = 0,
) -> Outcome:
    """Run `function(*args)` as every rank of a fresh gloo group on the CPU.

    timeout: seconds for the run once the group is ready. A collective that cannot finish is noticed at once.
    folder: where the ranks work (their current folder); None means a temporary one that is deleted afterward.
    seed: rank r starts with the random state of `torch.manual_seed(seed + r)` (Python and NumPy too).

    Mistakes of the function raise nothing here; they are in the Outcome. Raises CourseError if the function cannot be
    sent to another process, or if the processes cannot be started, and NotHere if they do not find one another.
    """
    payload = _packed(function, args)
    home = None if folder is None else str(Path(folder).resolve())
    modules = [name for name in sys.modules if name.partition(".")[0] in (__package__, place.LABS)]
    request = Request(world_size, payload, _cells(), timeout, home, seed, [_here(p) for p in sys.path], modules)
    with _turn:  # one run at a time: two would only take the cores from one another
        replies = _ask(request)
    if isinstance(replies, str):
        raise NotHere(
            f"The processes of this check could not connect on this machine: {replies} Your answer is not at fault. "
            "To find the reason, run `from torchcourse.commands import doctor; doctor.show()`."
        )
    return Outcome([_unpacked(i, reply) for i, reply in enumerate(replies)], timeout)


def judge(outcome: Outcome) -> None:
    """Raise what `evaluate` shows for a failed run: NotAttempted, AnswerRaised or Incorrect. Nothing if it is ok."""
    failed = outcome.failed
    if failed is None:
        return
    if failed.raised:
        if failed.raised.type == "NotImplementedError" and failed.raised.by_hand:
            raise NotAttempted
        raise AnswerRaised(_exception(failed))
    expected = "the same collectives in the same order on every rank" if failed.trouble else UNSAID
    raise Incorrect(outcome.sentence(), expected, outcome.details())


def observe(answer: Any, harness: Callable, *inputs: Any, functions: int = 1, world_size: int = 2, look: str) -> list:
    """For judges: what `harness(answer, *inputs)` returns on each rank, as plain data.

    functions: how many the answer consists of
    look: where to look if the ranks lose each other, which is Incorrect
    """
    seen = answers.observe(answer, _on_ranks, harness, functions, world_size, inputs)
    if isinstance(seen, dict):
        judge_lost(seen, look)
    return seen


def judge_lost(seen: dict[str, str], look: str) -> None:
    """Raise Incorrect if the ranks lost each other; seen: what `lost` says."""
    look = f"{look}{'' if look.endswith('?') else '.'} {seen.get('lines')}"
    wrong_if("deadlock" in seen, "deadlock", f"{seen.get('deadlock')}: a deadlock.", look)
    wrong_if(
        "tensors" in seen,
        "unequal_tensors",
        f"The ranks meet in one collective with different tensors: {seen.get('tensors')}.",
        look,
    )


def start(answer: Any, functions: int, harness: Callable, inputs: tuple, **options: Any) -> Outcome:
    """Run `harness(answer, *inputs)` as ranks, for a probe, and show what they print.

    functions: how many the answer consists of; options: those of `run`
    Raises what `evaluate` shows for a stub, for an answer of another kind, or if no process can be started.
    """
    parts = answer if isinstance(answer, tuple | list) else (answer,)
    for part in parts:
        attempted(part)
    if len(parts) != functions or not all(map(callable, parts)):
        several = f"({', '.join(['a function'] * functions)})"
        what = "the function itself, without parentheses" if functions == 1 else several
        raise Incorrect("Your answer is not what `check` takes here.", what, answer, "the call of `check`")
    try:
        outcome = run(harness, answer, *inputs, **options)
    except CourseError as problem:
        raise Incorrect(str(problem)) from problem
    for rank in outcome:
        for line in rank.printed.splitlines()[:20]:
            print(f"[rank {rank.rank}] {line}" if len(outcome) > 1 else line)
    return outcome


def _on_ranks(answer: Any, harness: Callable, functions: int, world_size: int, inputs: tuple) -> list[dict] | dict:
    """The probe of `observe`."""
    outcome = start(answer, functions, harness, inputs, world_size=world_size)
    if found := lost(outcome):
        return found
    judge(outcome)
    return outcome.values


def lost(outcome: Outcome) -> dict[str, str]:
    """{"deadlock" or "tensors": in words, "lines": where each rank was} if the ranks lost each other, else {}."""
    if not outcome.failed or not outcome.failed.trouble:
        return {}
    words, deadlock, _ = outcome.sentence().partition(": a deadlock.")
    words = words if deadlock else words.partition("different tensors: ")[2].rstrip(".")
    return {"deadlock" if deadlock else "tensors": words, "lines": outcome.details()}


# ---------------------------------------- there and back


def _here(path: str) -> str:
    return path or os.getcwd()


def _packed(function: Callable, args: tuple) -> bytes:
    """The call as bytes. What the student wrote goes by value, what is installed by name."""
    import cloudpickle  # here, because few checks need it

    own = {}
    for thing in (function, *args):
        module = sys.modules.get(getattr(thing, "__module__", None) or "")
        if isinstance(module, types.ModuleType) and module.__name__ != "__main__" and _is_own(module):
            own[module.__name__] = module
    known = cloudpickle.list_registry_pickle_by_value()
    mine = [module for name, module in own.items() if name not in known]
    for module in mine:
        cloudpickle.register_pickle_by_value(module)
    try:
        return cloudpickle.dumps((function, args))
    except Exception as problem:  # whatever an object's own pickling raises
        raise CourseError(
            f"Your function could not be sent to other processes ({type(problem).__name__}: {problem}). It uses "
            "something that lives in this process only, such as an open file or an iterator: create it inside."
        ) from problem
    finally:
        for module in mine:
            cloudpickle.unregister_pickle_by_value(module)


def _is_own(module: types.ModuleType) -> bool:
    file = getattr(module, "__file__", None)
    return bool(file) and is_students(os.path.abspath(file))


def _cells() -> dict[str, list[str]]:
    """The source of notebook cells, by the file name that tracebacks give them: on disk there is none."""
    return {name: entry[2] for name, entry in linecache.cache.items() if len(entry) == 4 and entry[1] is None}


def _unpacked(number: int, reply: dict) -> Rank:
    rank = Rank(number, **reply)
    if rank.status == "returned":
        import cloudpickle

        rank.value = cloudpickle.loads(rank.value)
    return rank


def _exception(failed: Rank) -> BaseException:
    """An exception like the one on the rank, raised at the same line: `evaluate` reads its traceback."""
    raised = failed.raised
    first, *more = raised.message.splitlines() or [""]
    message = "\n".join([f"{first} (on rank {failed.rank})".lstrip(), *more])  # a check shows the first line
    error = type(raised.type, (Exception,), {})(message)
    if raised.place is None:
        return error
    code = compile("\n" * (raised.place.number - 1) + "raise error", raised.place.file, "exec")
    try:
        exec(code, {"error": error})
    except Exception as at_that_line:
        return at_that_line
    return error


# ---------------------------------------- the server process


class _Server:
    """The process that makes ranks, and the line to it. It ends when the line is cut, be it by our own death."""

    def __init__(self) -> None:
        if os.name != "posix":
            raise CourseError("Checks with several processes need Linux or macOS: on Windows use WSL, or a hub.")
        self.owner = os.getpid()
        self.line, theirs = connection.Pipe()
        start = (
            "import json, os, sys; sys.path[:] = json.loads(sys.argv[2]); "
            "from torchcourse import importing; importing.load('torch', 'labcheck.rank_server'); "
            "from labcheck import rank_server; rank_server.serve(int(sys.argv[1])); "
            "os._exit(0)"  # nothing to take apart: that would take a second
        )
        # Ranks compute on the CPU. A process that has once asked a GPU for something cannot be forked any more, and
        # optimizers ask (whether a graph is being captured): so the server sees none.
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"}
        environment |= {"CUDA_VISIBLE_DEVICES": "", "HIP_VISIBLE_DEVICES": ""}
        # A fork copies the table of all pages. With Python's objects on large pages, that table is short, and a rank
        # starts in two thirds of the time. Only malloc gets large pages, and only glibc's; so objects come from there.
        tunables = [os.environ.get("GLIBC_TUNABLES"), "glibc.malloc.hugetlb=1"]
        environment |= {"PYTHONMALLOC": "malloc", "GLIBC_TUNABLES": ":".join(filter(None, tunables))}
        # The notebook's folder comes last, not first as in a notebook: a json.py in it must not hide Python's own.
        path = json.dumps(sorted(map(_here, sys.path), key=os.getcwd().__eq__))
        self.process = subprocess.Popen(
            [sys.executable, "-P", "-c", start, str(theirs.fileno()), path],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            pass_fds=[theirs.fileno()],
            process_group=0,  # Ctrl-C goes to the notebook, which then cuts the line
            env=environment,
        )
        theirs.close()

    def alive(self) -> bool:
        return self.owner == os.getpid() and not self.line.closed and self.process.poll() is None

    def stop(self) -> None:
        if self.owner != os.getpid():  # a fork of our process has no say
            return
        self.line.close()
        try:
            self.process.wait(3)
        except subprocess.TimeoutExpired:
            self.process.kill()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(10)


_turn = threading.RLock()
_current: _Server | None = None


def _server() -> _Server:
    global _current
    if _current is None or not _current.alive():
        if _current is not None:
            _current.stop()
        else:
            atexit.register(_stop)
        _current = _Server()
    return _current


def _stop() -> None:
    if _current is not None:
        _current.stop()


def _ask(request: Request) -> list[dict] | str:
    for attempt in (1, 2):
        server = _server()
        try:
            server.line.send(request)
            limit = time.monotonic() + request.timeout + PATIENCE
            while not server.line.poll(0.5):  # short waits, so that an interrupt or an alarm gets its turn
                if time.monotonic() > limit:
                    raise CourseError("The processes of this check did not answer. Run the cell again.")
            replies = server.line.recv()
        except (EOFError, OSError) as problem:
            server.stop()
            if attempt == 2:
                raise CourseError(
                    "The processes of this check ended unexpectedly, perhaps because they ran out of memory. Run the "
                    "cell again."
                ) from problem
        except BaseException:  # interrupted: what the server does now no longer matters
            server.stop()
            raise
        else:
            return replies
    raise AssertionError("not reached")
