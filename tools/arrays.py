"""Work for the site's own scheduler: `make run` and `make grade` with `--slurm PROFILE`.

    with Site.of(options).open(folder) as pool:
        futures = pool.submit_all(work, items, Need(longest=600, usual=60, mib=2000))

A job array does `work(item)` for each item. The library submitit hands it to Slurm. Each task leaves a file for each
item as soon as it is done, in a folder that all nodes see. That file is the only message: whole or not there. What a
task leaves undone, because its node failed or its time was up, goes into another array. After TRIES arrays the item's
future gets `Lost`. Which tasks are alive, squeue says, which every site has.
"""

import argparse
import contextlib
import dataclasses
import fcntl
import io
import itertools
import os
import pickle
import re
import secrets
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any, Self

from tools.course import ROOT

# `torchcourse` is imported where an array is handed in, for it brings PyTorch: a task needs it only if its work does.

TRIES = 3  # arrays that an item may be in
TASKS = 100  # of an array, at most: MaxArraySize is 1001 at most sites, and some let a user queue no more than this
MOST_MINUTES_TO_START = 10  # Python and PyTorch come from a shared disk, which a hundred tasks read at the same time
LOOK_EVERY = 1.0  # seconds between two looks into the folder
ASK_EVERY = (2.0, 30.0)  # seconds between two questions to the scheduler: after an array was handed in, and later
PATIENCE = 60.0  # seconds for Slurm to clear what was cancelled
PREFIX = "array-"  # begins the names of our folders; an array has the name of its folder
INSTALL = "pip install -c constraints.txt -e '.[slurm]'"


class Refused(Exception):
    """Slurm takes no such array. The message is a sentence."""


class Lost(Exception):
    """No task brought this item to its end. The message says what became of the last one."""


@dataclasses.dataclass(frozen=True)
class Need:
    """What an item takes."""

    longest: float  # seconds, at most
    usual: float  # seconds
    mib: int
    cores: int = 1
    together: int = 1  # items of a task, at least, where there are that many: a task takes its time to start


@dataclasses.dataclass(frozen=True)
class Site:
    """Where arrays go, and what their jobs are asked for."""

    profile: str
    partition: str | None = None
    account: str | None = None
    gpus: int = 0
    time: str | None = None
    at_once: int | None = None

    @staticmethod
    def add_options(parser: argparse.ArgumentParser) -> None:
        """The options of the command line that `Site.of` reads."""
        from torchcourse.cluster import job

        group = parser.add_argument_group("on a cluster")
        known = ", ".join(job.sites())
        group.add_argument("--slurm", metavar="PROFILE", help=f"a job array on the nodes of a site: {known}, or a file")
        group.add_argument("--partition", help="the site's partition; default: the first one that fits")
        group.add_argument("--account", help="the account that pays, where the site wants one")
        group.add_argument("--gpus", type=int, default=0, help="GPUs of a task (0)")
        group.add_argument("--time", help="time limit of a task, such as 1:30; default: what its work may take")

    @classmethod
    def of(cls, options: argparse.Namespace, at_once: int | None = None) -> "Site | None":
        """The site that the command line names; None without --slurm. at_once: tasks at the same time.

        Raises SystemExit with one sentence if no array can be handed in from here.
        """
        if not options.slurm:
            return None
        from torchcourse.cluster import job
        from torchcourse.errors import CourseError

        try:
            about = job.profile(options.slurm)
        except CourseError as error:
            raise SystemExit(str(error)) from None
        if about.get("account") == "required" and not options.account:
            raise SystemExit(f"{job.called(about)} wants to know who pays: add --account NAME to the options.")
        try:
            import submitit  # noqa: F401
        except ImportError:
            raise SystemExit(f"--slurm needs the library submitit, which is not installed here: {INSTALL}") from None
        if not all(map(shutil.which, ("sbatch", "squeue", "scancel", "srun"))):
            raise SystemExit(
                "--slurm needs Slurm's commands, and there is no sbatch here: call it on a login node of your cluster, "
                "or on the one that `make cluster` opens."
            )
        return cls(options.slurm, options.partition, options.account, options.gpus, options.time, at_once)

    @property
    def title(self) -> str:
        """The site in words, for the middle of a sentence."""
        from torchcourse.cluster import job

        title = job.called(job.profile(self.profile))
        return title[0].lower() + title[1:] if title.startswith("The ") else title

    def open(self, home: Path, say: Callable[[str], None] = print) -> "Pool":
        """A pool for this site. home: a folder that every node sees. say: prints a line."""
        return Pool(self, home, say)

    def request(self, need: Need, items: int, name: str) -> dict[str, Any]:
        """The parameters of submitit's executor for tasks of so many items. Raises Refused."""
        from torchcourse.cluster import job
        from torchcourse.errors import CourseError

        minutes = MOST_MINUTES_TO_START + int(need.longest + (items - 1) * need.usual) // 60 + 1
        try:
            text = job.script(
                self.profile,
                ["task.py"],
                gpus=self.gpus,
                processes=1,
                cores=need.cores,
                time=self.time or f"{minutes // 60}:{minutes % 60:02}",
                partition=self.partition,
                account=self.account,
                name=name,
            )
        except CourseError as error:
            raise Refused(str(error)) from None
        # What the profile's own job script asks for, the task's array asks for.
        asked = re.findall(r"^#SBATCH --([\w-]+)(?:=(\S+))?", text, re.MULTILINE)
        asked = {key.replace("-", "_"): value or True for key, value in asked if key != "output"}
        mib = max(need.mib, int(str(asked.pop("mem", "0M")).removesuffix("M")))
        more = {
            "chdir": str(ROOT),
            "export": "ALL",  # modules, paths: a task sees what this command sees
            "no-requeue": True,  # a task that Slurm starts again by itself would be one more than TRIES
        }
        return {
            "time": minutes,
            "mem": f"{mib}M",
            "setup": [f"export SRUN_CPUS_PER_TASK={need.cores}"],  # since 22.05, srun takes it from nowhere else
            "wckey": None,
            "array_parallelism": self.at_once or TASKS,
            "additional_parameters": asked | more,
        }


@dataclasses.dataclass(eq=False)
class Item:
    """One item of the work, and where its result goes."""

    number: int
    work: Callable[[Any], Any]
    item: Any
    need: Need
    started: Callable[[Any, str], None] | None
    future: Future = dataclasses.field(default_factory=Future)
    tries: int = 0
    begun: bool = False  # in the last try


class Pool(contextlib.AbstractContextManager):
    """Futures whose work is done by job arrays. Whatever ends its `with` block, no job and no file of it stays."""

    def __init__(self, site: Site, home: Path, say: Callable[[str], None] = print) -> None:
        self.site, self.say = site, say
        home.mkdir(parents=True, exist_ok=True)
        _sweep(home)
        self.folder = home.resolve() / f"{PREFIX}{secrets.token_hex(4)}"
        self.folder.mkdir(mode=0o700)  # it holds what the hidden inputs are made from
        self.results = self.folder / "results"
        self.results.mkdir()
        self._locked = _lock(self.folder)
        self._numbers = itertools.count()
        self._open: dict[int, Item] = {}  # number -> what has no result yet
        self._tasks: dict[str, list[Item]] = {}  # task in the queue -> its items
        self._change = threading.Lock()
        self._closing = threading.Event()
        self._pause = self._ask_at = 0.0
        self._watcher = threading.Thread(target=self._watch, name=self.folder.name, daemon=True)
        self._watcher.start()

    def submit_all(
        self,
        work: Callable[[Any], Any],
        items: Iterable[Any],
        need: Need,
        started: Callable[[Any, str], None] | None = None,
    ) -> list[Future]:
        """Have `work(item)` done for each of the items, on the nodes. The futures come in the items' order.

        work: pickled by cloudpickle, as are the items. started: called with an item and the name of the node.
        Raises SystemExit if Slurm takes no such job.
        """
        new = [Item(next(self._numbers), work, item, need, started) for item in items]
        with self._change:
            try:
                if new:
                    self._hand_in(new)
            except Refused as error:
                raise SystemExit(str(error)) from None
        return [each.future for each in new]

    def shutdown(self, wait: bool = True, cancel_futures: bool = True) -> None:
        """Cancel what is in the queue. wait: until Slurm has cleared it; then the folder goes, too."""
        self._closing.set()
        _cancel(self.folder.name)
        for each in list(self._open.values()):
            each.future.cancel()
        if wait:
            end = time.monotonic() + PATIENCE
            self._watcher.join(PATIENCE)
            while self._alive() and time.monotonic() < end:
                time.sleep(LOOK_EVERY / 4)
                _cancel(self.folder.name)  # again: an array may have been handed in meanwhile
            shutil.rmtree(self.folder, ignore_errors=True)
            os.close(self._locked)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *about: object) -> None:
        self.shutdown()

    # ------------------------------------------------------------------------------------------------------ the queue

    def _hand_in(self, items: Sequence[Item]) -> None:
        """One array for these items, which need the same. Raises Refused with Slurm's own words."""
        import submitit
        from submitit.core.utils import FailedJobError, FailedSubmissionError

        need = items[0].need
        size = max(need.together, -(-len(items) // TASKS))
        # What was at work when its task ended goes alone: it may be what took its neighbors with it.
        alone = [[each] for each in items if each.begun]
        others = [each for each in items if not each.begun]
        chunks = alone + [others[start : start + size] for start in range(0, len(others), size)]
        # submitit makes no array of a single task; the queue then names it without an index, and so do we.
        executor = submitit.SlurmExecutor(self.folder / "submitit")
        executor.update_parameters(**self.site.request(need, size, self.folder.name))
        works = [_Task(self.results, [(each.number, each.work, each.item) for each in chunk]) for chunk in chunks]
        try:
            # Temporary files of a task belong on its node.
            with submitit.helpers.clean_env(extra_names=["TMPDIR"]), contextlib.redirect_stderr(io.StringIO()):
                jobs = executor.submit_array(works)
        except (FailedJobError, FailedSubmissionError, OSError) as error:
            reason = " ".join(str(error).removeprefix("sbatch: error: ").split())
            raise Refused(f"Slurm takes no such array: {reason}") from None
        for each in items:
            each.tries += 1
            each.begun = False
            self._open[each.number] = each
        self._tasks |= {one.job_id: chunk for one, chunk in zip(jobs, chunks, strict=True)}
        self._pause = ASK_EVERY[0]
        self._ask_at = time.monotonic() + self._pause

    def _watch(self) -> None:
        stumbled = 0  # how often in a row: a shared disk may be away for a moment
        while not self._closing.wait(LOOK_EVERY):
            try:
                with self._change:
                    self._collect()
                    if self._tasks and time.monotonic() > self._ask_at:
                        self._look_for_lost_tasks()
                        self._pause = min(1.5 * self._pause, ASK_EVERY[1])
                        self._ask_at = time.monotonic() + self._pause
                stumbled = 0
            except Exception as error:
                stumbled += 1
                if self._closing.is_set() or (isinstance(error, OSError) and stumbled < PATIENCE / LOOK_EVERY):
                    continue
                for number in list(self._open):  # or the command waits for ever
                    self._open.pop(number).future.set_exception(error)

    def _collect(self) -> None:
        """Take in the results that are there."""
        for path in sorted(self.results.iterdir()):
            name, _, kind = path.name.partition(".")
            if kind not in ("node", "done"):
                continue
            content = path.read_bytes()
            path.unlink()
            each = self._open.get(int(name))
            if each is None:  # a task that was believed lost has ended after all: one result is enough
                continue
            if kind == "node":
                each.begun = True
                if each.started:
                    each.started(each.item, content.decode())
            else:
                value, error = pickle.loads(content)
                del self._open[each.number]
                each.future.set_exception(error) if error else each.future.set_result(value)

    def _look_for_lost_tasks(self) -> None:
        alive = self._alive()
        if alive is None:
            return
        self._collect()  # what it finished before it left the queue
        lost: list[Item] = []
        for task in [each for each in self._tasks if each not in alive]:
            left = [each for each in self._tasks.pop(task) if each.number in self._open]
            if not left:
                continue
            fate = self._fate(task)
            again = [] if fate.startswith("CANCELLED") else [each for each in left if each.tries < TRIES]
            lost += again
            for each in left:
                if each not in again:
                    times = f", {each.tries} times" if each.tries > 1 else ""
                    del self._open[each.number]
                    each.future.set_exception(Lost(f"its task on the cluster ended without a result{times}: {fate}"))
            if again:
                self.say(f"Task {task} ended early ({fate}): handed in again, {len(again)} of its {len(left)}")
        for need in {each.need for each in lost}:
            same = [each for each in lost if each.need == need]
            try:
                self._hand_in(same)
            except Refused as error:
                for each in same:
                    del self._open[each.number]
                    each.future.set_exception(Lost(f"its task on the cluster ended without a result. {error}"))

    def _alive(self) -> set[str] | None:
        """The tasks of our arrays that wait or run; None if Slurm does not answer now."""
        words = ["--noheader", "--array", "--format=%F %K"]
        said = _ask("squeue", *words, f"--name={self.folder.name}", f"--user={os.geteuid()}")
        if said is None:
            return None
        rows = [line.split() for line in said.splitlines()]
        return {number if index == "N/A" else f"{number}_{index}" for number, index in rows}

    def _fate(self, task: str) -> str:
        """What became of a task: Slurm's word for it, and its own last one."""
        said = _ask("scontrol", "show", "job", "--oneliner", task) or ""
        state = re.search(r"\bJobState=(\S+)", said)
        node = re.search(r"\bNodeList=(\w\S*)", said)
        fate = (state[1] if state else "no longer known to Slurm") + (f" on {node[1]}" if node else "")
        try:
            log = (self.folder / "submitit" / f"{task}_0_log.err").read_text(errors="replace")
        except OSError:
            return fate if "NODE_FAIL" in fate else f"{fate}. It left no log: do the nodes see {self.folder.parent}?"
        for line in reversed(log.splitlines()):
            if line.strip() and not line.startswith(("srun:", "slurmstepd:", "submitit ")):
                return f"{fate}: {line.strip()[:300]}"
        return fate


def _ask(*command: str) -> str | None:
    """What one of Slurm's commands says; None if it fails."""
    # Away from the terminal: a Ctrl-C is for us.
    apart = {"stdin": subprocess.DEVNULL, "start_new_session": True}
    try:
        done = subprocess.run(command, capture_output=True, text=True, **apart)
    except OSError:
        return None
    return None if done.returncode else done.stdout


def _cancel(name: str) -> None:
    """Cancel by name: an array that was handed in while a signal came has no number that we know."""
    _ask("scancel", f"--name={name}", f"--user={os.geteuid()}")


def _lock(folder: Path) -> int:
    """Say that a folder is in use, as long as this process lives."""
    held = os.open(folder, os.O_RDONLY)
    with contextlib.suppress(OSError):  # a disk without locks
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
    return held


def _sweep(home: Path) -> None:
    """Cancel and remove what a killed process left."""
    for folder in home.glob(f"{PREFIX}*"):
        held = os.open(folder, os.O_RDONLY)
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
            _cancel(folder.name)
            shutil.rmtree(folder, ignore_errors=True)
        except OSError:  # another process works with it, or the disk has no locks
            pass
        finally:
            os.close(held)


# ---------------------------------------------------------------------------------------------------------------------
# On a node


@dataclasses.dataclass
class _Task:
    """What one task of an array does."""

    results: Path
    items: list[tuple[int, Callable[[Any], Any], Any]]

    def __call__(self) -> None:
        # Slurm says TERM when it cancels, and USR2 (submitit asks for it) before the time limit: end, and clean up.
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        signal.signal(signal.SIGUSR2, _time_is_up)
        for number, work, item in self.items:
            write(self.results / f"{number}.node", os.uname().nodename.encode())
            try:
                said = pickle.dumps((work(item), None))
            except (Exception, SystemExit) as error:
                said = _pickled(error)
            write(self.results / f"{number}.done", said)


def _time_is_up(*_: object) -> None:
    raise KeyboardInterrupt("the time of the task was up")


def _pickled(error: BaseException) -> bytes:
    try:
        pickle.loads(said := pickle.dumps((None, error)))
        return said
    except Exception:  # an exception that cannot travel
        return pickle.dumps((None, RuntimeError(f"{type(error).__name__}: {error}")))


def write(path: Path, content: bytes) -> None:
    """A file that is whole, or not there; another process may be writing the same."""
    part = path.with_name(f"{path.name}.{secrets.token_hex(4)}.part")
    part.write_bytes(content)
    os.replace(part, path)
