"""The other side of ranks.py: a process that has imported PyTorch and makes ranks by forking itself.

The server waits for a request, starts a process per rank, watches them, kills them all when nothing more can happen,
and answers. It ends when the line to the notebook is cut. Nothing here runs in the notebook's own process.

How a rank learns that it waits for a message that cannot come: all its calls of torch.distributed go through a ledger
that the ranks share (collectives.py). Anything other than a collective, such as a `recv` without a `send`, ends at the
time limit: then the ranks are asked where they are (stack_dumps.py).
"""

from __future__ import annotations

import contextlib
import ctypes
import datetime
import faulthandler
import importlib
import itertools
import linecache
import multiprocessing
import os
import random
import signal
import sys
import tempfile
import threading
import time
import traceback
from multiprocessing import connection
from pathlib import Path
from typing import Any

import cloudpickle
import numpy as np
import torch
import torch._dynamo  # every optimizer and every DistributedDataParallel imports it: better here once than in each rank
import torch.distributed as dist
import torch.distributed.checkpoint  # likewise: the answers of chapter 09 import it, in up to eight ranks for a check
import torch.nn.parallel
import torch.utils.data

from labcheck.answer import is_students, raised_by_hand
from labcheck.collectives import RAISED, Ledger
from labcheck.ranks import Place, Raised, Request
from torchcourse.distributed import stack_dumps
from torchcourse.distributed.network import loopback

AFTER_FAILURE = 5.0  # seconds that ranks have to come to their own end once another one failed
END = 10.0  # seconds in which the system ends a process that was killed
START_LIMIT = 120.0  # seconds until all processes have joined the group
IDLE_LIMIT = 900.0  # seconds until a server without requests ends by itself
# Forking a process that has imported PyTorch takes milliseconds. macOS's own libraries do not survive it.
METHOD = "fork" if sys.platform == "linux" else "spawn"


def serve(fd: int) -> None:
    """Answer requests that come over the line `fd` until it is cut."""
    line, parent = connection.Connection(fd), os.getppid()
    os.set_inheritable(fd, False)
    # What each rank would do anew: look for gloo in all installed packages, and read the source lines of its own stack.
    dist.is_backend_available("cpu:gloo")
    torch.manual_seed(0)
    idle = 0.0
    while idle < IDLE_LIMIT and os.getppid() == parent:
        if not line.poll(2.0):
            idle += 2.0
            continue
        try:
            request = line.recv()
        except (EOFError, OSError):
            return
        answer = _supervise(line, parent, request)
        if answer is None:
            return
        with contextlib.suppress(OSError):
            line.send(answer)
        idle = 0.0


# ---------------------------------------- watching


class _Watched:
    """What the server knows of one rank."""

    def __init__(self, process: multiprocessing.Process, line: connection.Connection, stack: Path) -> None:
        self.process, self.line, self.stack = process, line, stack
        self.joined = False  # the group is ready
        self.report: dict | None = None  # what came in the end

    def listen(self) -> None:
        """Take in one message of the rank."""
        try:
            kind, *content = self.line.recv()
        except (EOFError, OSError):
            self.process.join(END)
            self.finish(status="died", exit_code=self.process.exitcode)
            return
        if kind == "joined":
            self.joined = True
        else:
            self.finish(**content[0])

    def finish(self, **report: Any) -> None:
        self.report = report
        self.line.close()


def _supervise(line: connection.Connection, parent: int, request: Request) -> list[dict] | str | None:
    """Run the ranks of one request. Returns a report for each, or None if the line was cut meanwhile.

    A string says why the ranks never got to the answer: then the machine is to blame.
    """
    for module in request.modules:  # once here, not in each rank
        with contextlib.suppress(ImportError):
            importlib.import_module(module)
    with tempfile.TemporaryDirectory(prefix="torchcourse-", ignore_cleanup_errors=True) as scratch:
        work = request.folder or os.path.join(scratch, "work")
        os.makedirs(work, exist_ok=True)
        context = multiprocessing.get_context(METHOD)
        among = _lines(context, request.world_size)
        ranks = []
        for rank in range(request.world_size):
            ours, theirs = context.Pipe(duplex=False)
            job = (theirs, among[rank], rank, request, work, scratch)
            process = context.Process(target=_rank, args=job, daemon=False)
            process.start()
            theirs.close()
            ranks.append(_Watched(process, ours, Path(scratch, f"{rank}.stack")))
        for end in (end for ends in among for end in ends.values()):
            end.close()
        try:
            if not _watch(ranks, line, parent, request):
                return None
        finally:
            for watched in ranks:
                _kill(watched.process)
        for rank, watched in enumerate(ranks):
            for name in ("printed", "errors"):
                file = Path(scratch, f"{rank}.{name}")
                watched.report[name] = file.read_text("utf-8", "replace") if file.exists() else ""
            if not watched.joined:
                said = watched.report["errors"].strip().splitlines() or ["it printed nothing"]
                return f"rank {rank} did not join ({said[-1]})."
        return [watched.report for watched in ranks]


def _lines(context: multiprocessing.context.BaseContext, world_size: int) -> list[dict[int, connection.Connection]]:
    """For each rank its line to each other rank: the ledger's, faster than the store through which the group meets."""
    ends: list[dict[int, connection.Connection]] = [{} for _ in range(world_size)]
    for one, other in itertools.combinations(range(world_size), 2):
        ends[one][other], ends[other][one] = context.Pipe()
    return ends


def _watch(ranks: list[_Watched], line: connection.Connection, parent: int, request: Request) -> bool:
    """Wait until every rank has its report. False if the notebook went away."""
    limit = time.monotonic() + START_LIMIT
    started = failed = False
    while open_ones := [watched for watched in ranks if watched.report is None]:
        ready = connection.wait([line, *(watched.line for watched in open_ones)], timeout=0.5)
        if line in ready or os.getppid() != parent:  # it never speaks during a run: this is its end
            return False
        for watched in open_ones:
            if watched.line in ready:
                watched.listen()
        if not started and all(watched.joined or watched.report for watched in ranks):
            started, limit = True, time.monotonic() + request.timeout
        ended = {watched.report["status"] for watched in ranks if watched.report}
        if not failed and ended - {"returned"}:
            failed, limit = True, min(limit, time.monotonic() + AFTER_FAILURE)
        if time.monotonic() > limit:
            _stop([watched for watched in ranks if watched.report is None], request.cells, ended & {"raised", "died"})
    _blame_first(ranks)
    return True


def _stop(ranks: list[_Watched], cells: dict, because: set[str]) -> None:
    """The reports of ranks that do not come to an end by themselves."""
    stacks = stack_dumps.stacks(
        {watched.process.pid: watched.stack for watched in ranks}, r'"<string>", line 1 in <module>'
    )
    for watched, stack in zip(ranks, stacks, strict=True):
        place = None
        if found := stack_dumps.place(stack, is_students):
            file, number, call = found
            source = "".join(cells.get(file, [])[number - 1 : number]) or linecache.getline(file, number)
            place = Place(file, number, source.strip(), call)
        watched.finish(status="stopped" if because else "waiting" if place and place.call else "running", place=place)


def _blame_first(ranks: list[_Watched]) -> None:
    """If a process died, the errors of the others are its consequence: their connections were closed."""
    if any(watched.report["status"] == "died" for watched in ranks):
        for watched in ranks:
            if watched.report["status"] == "raised" and watched.report.pop("follows"):
                raised = watched.report.pop("raised")
                watched.report |= {"status": "stopped", "place": raised.place}
    for watched in ranks:
        watched.report.pop("follows", None)


def _kill(process: multiprocessing.Process) -> None:
    """End a rank, and what it has started itself."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.kill()
    process.join(END)


# ---------------------------------------- a rank


def _rank(
    line: connection.Connection,
    others: dict[int, connection.Connection],
    rank: int,
    request: Request,
    work: str,
    scratch: str,
) -> None:
    """The process of one rank: joins the group, calls the function, reports, and waits for its end."""
    with contextlib.suppress(OSError):
        os.setpgid(0, 0)
    _die_with_server()
    sys.path[:] = request.path
    _redirect(scratch, rank)
    os.chdir(work)
    linecache.cache.update({name: (sum(map(len, lines)), None, lines, name) for name, lines in request.cells.items()})
    world_size, seed = request.world_size, request.seed + rank
    os.environ |= {
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "WORLD_SIZE": str(world_size),
        "LOCAL_WORLD_SIZE": str(world_size),
        "GLOO_SOCKET_IFNAME": loopback(),  # a site's setting is for its nodes; all ranks are here
    }
    faulthandler.register(signal.SIGUSR1, open(os.path.join(scratch, f"{rank}.stack"), "w"), all_threads=False)  # noqa: SIM115
    torch.set_num_threads(1)
    random.seed(seed)
    np.random.seed(seed % 2**32)  # outdated, but students use what it seeds
    torch.manual_seed(seed)
    wrote = _note_files(work)

    def report(**content: Any) -> None:
        sys.stdout.flush()
        sys.stderr.flush()
        line.send(("report", {**content, "wrote": tuple(sorted(wrote))}))

    store = dist.FileStore(os.path.join(scratch, "store"), world_size)
    # Longer than our own limit: we stop a rank that waits, and know more about it than a time-out of gloo.
    patience = datetime.timedelta(seconds=request.timeout + START_LIMIT)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=world_size, timeout=patience)
    dist.barrier()
    line.send(("joined",))
    ledger = Ledger(others)
    try:
        function, args = cloudpickle.loads(request.payload)
        with ledger:
            value = function(*args)
        ended = {"status": "returned", "value": cloudpickle.dumps(value)}
    except (Exception, SystemExit, KeyboardInterrupt) as error:
        raised = _raised(error)
        follows = raised.place is None or bool(raised.place.call)
        ended = {"status": "raised", "raised": raised, "follows": follows, "place": raised.place}
    if ledger.trouble:  # also where the answer has swallowed the exception
        alone = any(one["what"] == RAISED for one in ledger.trouble)
        status = "stopped" if alone else "waiting"
        ended = {"status": status, "trouble": ledger.trouble, "place": ended.get("place")}
    elif ended["status"] == "raised":
        del ended["place"]
    report(**ended)
    # The connections to the other ranks stay open until the server ends us all: no rank's end makes others fail.
    threading.Event().wait()


def _die_with_server() -> None:
    """Ask Linux to end this process with its parent, however that comes to its end. Elsewhere a thread looks."""
    parent = os.getppid()
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG

    def look() -> None:
        while os.getppid() == parent:
            time.sleep(1)
        os.killpg(0, signal.SIGKILL)

    threading.Thread(target=look, daemon=True).start()


def _redirect(scratch: str, rank: int) -> None:
    """Let what is printed go to files: Python's own prints, and those of libraries below it."""
    for number, name in ((1, "printed"), (2, "errors")):
        file = os.open(os.path.join(scratch, f"{rank}.{name}"), os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(file, number)
        os.close(file)
    sys.stdin = open(os.devnull)  # noqa: SIM115
    sys.stdout = open(1, "w", encoding="utf-8", errors="replace", buffering=1, closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", encoding="utf-8", errors="replace", buffering=1, closefd=False)  # noqa: SIM115


def _note_files(work: str) -> set[str]:
    """A set that fills with the files in `work` that this process writes."""
    folder, wrote = os.path.realpath(work), set()

    def note(file: Any) -> None:
        with contextlib.suppress(TypeError, ValueError):
            path = os.path.realpath(os.fsdecode(file))
            # tempfile.NamedTemporaryFile opens the file by way of its folder, and the file itself a moment later
            if path.startswith(folder + os.sep) and not os.path.isdir(path):
                wrote.add(os.path.relpath(path, folder))

    def hook(event: str, args: tuple) -> None:
        if event == "open" and (set(args[1] or "") & set("wax+") or (args[2] or 0) & (os.O_WRONLY | os.O_RDWR)):
            note(args[0])
        elif event == "os.rename":
            wrote.discard(os.path.relpath(os.path.realpath(os.fsdecode(args[0])), folder))
            note(args[1])

    sys.addaudithook(hook)
    save = torch.save  # writes in C++, where no hook of Python's sees it

    def noting_save(obj: Any, f: Any, *args: Any, **kwargs: Any) -> None:
        note(f)
        save(obj, f, *args, **kwargs)

    torch.save = noting_save
    return wrote


def _place(frames: list[tuple[Any, int]]) -> Place | None:
    """The innermost line of the student's own among frames (outermost first), and what it waits for."""
    own = [i for i, (frame, _) in enumerate(frames) if is_students(frame.f_code.co_filename)]
    if not own:
        return None
    frame, number = frames[own[-1]]
    file = frame.f_code.co_filename
    inner = [(each.f_code.co_filename, each.f_code.co_name) for each, _ in frames[own[-1] + 1 :]]
    return Place(file, number, linecache.getline(file, number).strip(), stack_dumps.waiting_call(inner))


def _raised(error: BaseException) -> Raised:
    place = _place(list(traceback.walk_tb(error.__traceback__)))
    by_hand = place is not None and type(error) is NotImplementedError and raised_by_hand(error)
    return Raised(type(error).__name__, str(error), place, by_hand)
