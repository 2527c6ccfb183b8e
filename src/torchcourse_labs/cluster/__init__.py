"""The exercises of chapter 11: job scripts, run with commands that only pretend, and what one reads on a cluster."""

import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch.distributed as dist

from labcheck import ranks
from labcheck.answer import attempted
from labcheck.show import show
from torchcourse_labs._spec import Mistake, Raised, Spec, changed, chapter, says  # noqa: F401 - for the tables

EXERCISES = ("why_failed", "settings_of", "job_script", "requeue", "right_size")
CHAPTER = "11_cluster"

exercise = chapter("11_cluster")


# ---------------------------------------- one copy for each node


def _stage_once(source, folder):
    target = folder / source.name
    part = target.with_suffix(".part")
    if int(os.environ["SLURM_LOCALID"]) == 0:
        shutil.copyfile(source, part)
        os.replace(part, target)
    while not target.exists():
        time.sleep(0.02)
    return target


def _by_bytes(source, folder):
    target = os.path.join(folder, source.name)
    if os.environ.get("SLURM_LOCALID") == "0":
        with open(source, "rb") as file, open(target + "~", "wb") as copy:
            copy.write(file.read())
        os.rename(target + "~", target)
    else:
        while not os.path.isfile(target):
            pass
    return target


def _in_a_folder_within(source, folder):
    target = folder / source.name
    if os.environ["SLURM_LOCALID"] == "0":
        with tempfile.TemporaryDirectory(dir=folder) as work:
            os.replace(shutil.copy(source, work), target)
    while not target.exists():
        time.sleep(0.02)
    return target


def _by_shell(source, folder):
    target = folder / source.name
    if os.environ["SLURM_LOCALID"] == "0":
        subprocess.run(f"cp {source} {target}.part && mv {target}.part {target}", shell=True, check=True)
    while not target.exists():
        time.sleep(0.02)
    return target


TASKS = 3  # on the first node, so that no remainder of SLURM_PROCID is 0 once on each node
WAIT = 0.4  # seconds that the network disk takes to open a file, and the node's to rename one
LATE = 3.0  # seconds that the last task of a node waits for the copy before it begins at all
PATIENCE = 6  # seconds after which a task counts as waiting forever
NAP = 1.0  # seconds that a task sleeps at most; where one does, the disks take longer, so that sleeping is not enough


class _StillWaiting(BaseException):
    pass


def _in_words(path: str, source: str, folder: str) -> str:
    """A path in words that are the same in every run: temporary folders have random names."""
    path = os.path.abspath(path)
    places = {
        source: "the source",
        folder: "the node's folder",
        os.path.dirname(source): "the folder of the source",
        os.path.dirname(folder): "the disk of another node",
        os.path.realpath("."): "the current folder",
        os.path.realpath(tempfile.gettempdir()): "the system's temporary folder",
    }
    place = next((place for place in places if f"{path}{os.sep}".startswith(f"{place}{os.sep}")), None)
    return places[place] if place else "another folder"


def _in_one_go(words: Any, source: str, target: str) -> bool:
    """Tell whether a command, or one of several in a shell's line, copies the source to its final name."""
    text = words if isinstance(words, str) else words[-1] if "-c" in words else shlex.join(map(os.fsdecode, words))
    commands = [each.split() for each in re.split(r"&&|\|\||[;\n]", text.replace("'", "").replace('"', ""))]
    ends = (target, os.path.dirname(target))
    return any(source in each and each[-1].rstrip("/") in ends for each in commands)


def _on_task(answer: Callable, source: str, nodes: list[str], length: int) -> dict:
    """One of four tasks, three on one node and one on the other, in a process of its own: what it did with files."""
    rank = int(os.environ["RANK"])
    node, local = divmod(rank, TASKS)
    os.environ |= {"SLURM_PROCID": str(rank), "SLURM_NODEID": str(node), "SLURM_LOCALID": str(local)}
    os.environ |= {"SLURM_NTASKS": "4", "SLURM_NNODES": "2", "SLURM_TASKS_PER_NODE": "3,1", "TMPDIR": nodes[node]}
    target = os.path.join(nodes[node], os.path.basename(source))
    napped = Path(source).parent.parent / "napped"
    sleep = time.sleep
    seen = {"node": node, "reads": 0, "in place": False, "hung": False, "from": ""}

    def nap(seconds: float) -> None:
        if seconds >= NAP:
            napped.touch()
        sleep(min(seconds, NAP))

    def take_time() -> None:
        sleep(WAIT + (NAP if napped.exists() else 0))

    def watch(event: str, args: tuple) -> None:
        if event == "open" and isinstance(args[0], str | os.PathLike):
            path = os.fspath(args[0])
            writes = (args[2] or 0) & (os.O_WRONLY | os.O_RDWR)
            if path == source and not writes:
                seen["reads"] += 1
                take_time()
            seen["in place"] |= path == target and bool(writes)
        elif event == "os.rename" and os.path.abspath(os.fsdecode(args[1])) == target:
            folder = os.path.dirname(os.path.abspath(os.fsdecode(args[0])))
            below = f"{folder}{os.sep}".startswith(f"{nodes[node]}{os.sep}")  # on the same disk
            seen["from"] = "" if below else _in_words(folder, source, nodes[node])
            take_time()
        elif event == "subprocess.Popen":
            words = str(args[1])
            if source in words:
                seen["reads"] += 1
                seen["in place"] |= _in_one_go(args[1], source, target)
                sleep(WAIT)  # until another task has begun its nap
                take_time()

    def ring(*_: Any) -> None:
        raise _StillWaiting

    comes_late = time.monotonic() + (LATE if local == TASKS - 1 else 0)
    while time.monotonic() < comes_late and not os.path.isfile(target):
        sleep(0.02)
    sys.addaudithook(watch)
    signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, PATIENCE, 0.5)
    world, dist.GroupMember.WORLD = dist.GroupMember.WORLD, None  # the tasks of the exercise have no process group
    time.sleep = nap
    try:
        result = answer(Path(source), Path(nodes[node]))
        signal.setitimer(signal.ITIMER_REAL, 0)
        whole = os.path.isfile(target) and os.path.getsize(target) == length
        same = isinstance(result, str | os.PathLike) and os.path.normpath(result) == target
        size = os.path.getsize(target) if os.path.isfile(target) else 0
        returned = _in_words(result, source, nodes[node]) if isinstance(result, str | os.PathLike) else show(result)
        seen |= {"whole": whole, "size": size, "result": same, "returned": returned}
    except _StillWaiting:
        seen["hung"] = True
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        dist.GroupMember.WORLD, time.sleep = world, sleep
    return seen


def _four_tasks(answer: Any, name: str, size: int) -> dict:
    """A probe: four tasks on two nodes. A node's disk is a folder."""
    attempted(answer)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as here:
        here = os.path.realpath(here)
        nodes = [os.path.join(here, node) for node in ("n1", "n2")]
        for folder in (*nodes, os.path.join(here, "network")):
            os.mkdir(folder)
        source = os.path.join(here, "network", name)
        Path(source).write_bytes(bytes(range(256)) * size)
        outcome = ranks.run(_on_task, answer, source, nodes, 256 * size, world_size=4, timeout=30)
        ranks.judge(outcome)
        left = sorted({file for folder in nodes for file in os.listdir(folder) if file != name})
        kept = os.path.exists(source)
    return {"tasks": outcome.values, "left": left, "kept": kept}


def _staged(ask: Any, name: str, size: int) -> dict:
    """The measure of `stage_once`."""
    seen = ask.observe(_four_tasks, name, size)
    tasks = seen["tasks"]
    waiting = [rank for rank, task in enumerate(tasks) if task["hung"]]
    return {
        "Tasks that wait forever": waiting,
        # Of this file: its size is drawn, so what was seen in another run is of no use.
        "The copy is as long as the file": any(task.get("size") == 256 * size for task in tasks),
        "Copies on each node": [sum(t["reads"] > 0 for t in tasks if t["node"] == node) for node in range(2)],
        "Tasks that return before the copy is complete": [
            rank for rank, task in enumerate(tasks) if not task["hung"] and not task["whole"]
        ],
        "The copy appears under its name when it is complete": not any(task["in place"] for task in tasks),
        "The copy is renamed within its folder": not any(task["from"] for task in tasks),
        "from": next((task["from"] for task in tasks if task["from"]), ""),
        "What is returned": sorted({t["returned"] for t in tasks if not t["hung"] and not t["result"]}),
        "What is left beside the copy": seen["left"],
        "The source is still there": seen["kept"],
    }


def _in_place(source, folder):
    if os.environ["SLURM_LOCALID"] == "0":
        subprocess.run(["cp", str(source), str(folder / source.name)], check=True)
    time.sleep(2 * WAIT)
    return folder / source.name


exercise(
    "stage_once",
    title="One copy for each node",
    minutes=10,
    difficulty=3,
    points=3,
    seconds=150.0,
    takeaway="SLURM_LOCALID 0 exists once on each node: it copies under another name and renames, and for all others "
    "the "
    "file's name alone means that it is whole.",
    hints=(
        "Every task runs this function. Which of Slurm's numbers is 0 exactly once on each node?",
        "That task copies to another name in the same folder and calls `os.replace`, which happens at once. The others "
        "wait in a loop until the final name exists, with a short `time.sleep` in it.",
        '`if os.environ["SLURM_LOCALID"] == "0":`, then `shutil.copyfile(source, part)` and '
        "`os.replace(part, target)`; for all: `while not target.exists(): time.sleep(0.02)`.",
    ),
    spec=Spec(
        draw=lambda new: [(f"digits{new.size(2, 99)}.bin", new.size(200, 900))],
        solution=_stage_once,
        measure=_staged,
        mistakes=r"""
            int(os.environ["SLURM_LOCALID"]) == 0 → int(os.environ["SLURM_PROCID"]) == 0
                Only one task of the whole job copies, and the second node, which sees only its own disk, waits for
                ever.
                look: SLURM_LOCALID, which is 0 once on each node
                when: yours["Tasks that wait forever"] == [3] and yours["Copies on each node"] == [1, 0]
            shutil.copyfile(source, part) → shutil.move(source, part)
                Your function takes the source away, and it has to stay: the other node copies it, too.
                look: `move` and `rename` of the source
                when: says(yours, "/network/") and says(yours, "No such file")
            os.replace(part, target) → os.replace(part, target); os.replace(part, target)
                Your temporary file was gone when you renamed it: an earlier line, or another task that copies on this
                node, had renamed it already.
                look: which tasks copy: SLURM_LOCALID is 0 once on each node
                when: says(yours, "/n1/", "/n2/") and says(yours, "No such file")
            int(os.environ["SLURM_LOCALID"]) == 0 → os.environ["SLURM_LOCALID"] == 0
            int(os.environ["SLURM_LOCALID"]) == 0 → int(os.environ["SLURM_PROCID"]) % 2 == 0
                    && .with_suffix(".part") → .with_suffix(f".{os.getpid()}")
            os.replace(part, target) → pass
                Tasks {yours[Tasks that wait forever]} of 4 wait forever.
                look: whether a task copies on this node, and whether its copy gets the name that the others wait for;
                    variables of the environment are strings
                when: yours["Tasks that wait forever"]
            int(os.environ["SLURM_LOCALID"]) == 0 → True && .with_suffix(".part") → .with_suffix(f".{os.getpid()}")
            int(os.environ["SLURM_LOCALID"]) == 0 → not target.exists()
                    && .with_suffix(".part") → .with_suffix(f".{os.getpid()}")
            = shutil.copy(source, folder)
                On the two nodes {yours[Copies on each node]} tasks read the source; it should be one on each: every
                read goes over the network.
                look: SLURM_LOCALID
                when: max(yours["Copies on each node"]) > 1
            int(os.environ["SLURM_LOCALID"]) == 0 → int(os.environ["SLURM_PROCID"]) == 0
                    && while not target.exists():\n        time.sleep(0.02) → pass
            shutil.copyfile(source, part) → os.symlink(source, part)
                A task of each node, or of one of them, has to read the source; yours read it {yours[Copies on each
                node]} times on the nodes.
                look: SLURM_LOCALID, which is 0 once on each node; a link is no copy, it leads to the network disk
                when: min(yours["Copies on each node"]) < 1
            target.with_suffix(".part") → target
            shutil.copyfile(source, part) → target.write_bytes(source.read_bytes()) && os.replace(part, target) → pass
            = _in_place(source, folder)
                The copy grows under its final name, so a task that looks for this name may read half a file.
                look: another name in the same folder, then `os.replace`
                when: not yours["The copy appears under its name when it is complete"]
            target.with_suffix(".part") → Path(tempfile.mkdtemp()) / "part"
                The copy is not written in the node's folder, but in {yours[from]}. That may be another disk, and
                between disks nothing can be renamed, only copied.
                look: a temporary name in the same folder
                when: yours["from"]
            folder / source.name → folder / "data.bin"
            return target → pass || return folder || return source
                Your function should return the path of the copy, `folder / source.name`. It returns {yours[What is
                returned][0]}.
                when: yours["What is returned"]
            while not target.exists():\n        time.sleep(0.02) → pass || time.sleep(4)
            while not target → if not target || while not part.exists() and not target
                Tasks {yours[Tasks that return before the copy is complete]} return before their node has the copy: they
                do not wait for it.
                look: a loop until the final name is there
                when: yours["Tasks that return before the copy is complete"]
            os.replace(part, target)
                    → shutil.copyfile(part, target.with_suffix('.2')); os.replace(target.with_suffix('.2'), target)
                Beside the copy, {yours[What is left beside the copy]} is left on the node's disk.
                look: rename the copy, rather than copy once more; its final name says that it is whole, without a
                    second file
                when: yours["What is left beside the copy"]
        """,
        also_right=[
            _by_bytes,
            _by_shell,
            _in_a_folder_within,
            changed(_stage_once, ("time.sleep(0.02)", "time.sleep(1.5)")),
        ],
    ),
)
