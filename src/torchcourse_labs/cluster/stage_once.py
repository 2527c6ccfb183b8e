"""One copy of a file on each node: three tasks on one and one on the other, where a node's disk is a folder."""

import os
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch.distributed as dist

from labcheck import ranks
from labcheck.authoring import Exercise, Incorrect, Inputs, observe, same, show, wrong_if

TASKS = 3  # on the first node, so that no remainder of SLURM_PROCID is 0 once on each node
RENAMING = 1.0  # seconds that the node's disk takes to rename a file, and a command to start
NAP = 0.2  # seconds that a task sleeps at most, so that sleeping is not enough
LATE = 3.0  # seconds that the last task of the first node waits for the copy before it begins at all
PATIENCE = 10.0  # seconds after which a task counts as waiting forever


def solution(source: Path, folder: Path) -> Path:
    target = folder / source.name
    part = target.with_suffix(".part")
    if int(os.environ["SLURM_LOCALID"]) == 0:
        shutil.copyfile(source, part)
        os.replace(part, target)
    while not target.exists():
        time.sleep(0.02)
    return target


def task(answer: Callable, source: str, nodes: list[str]) -> dict:
    """One of the tasks, in a process of its own: what it does with files."""
    rank, sleep = int(os.environ["RANK"]), time.sleep
    node, local = divmod(rank, TASKS)
    os.environ |= {"SLURM_PROCID": str(rank), "SLURM_NODEID": str(node), "SLURM_LOCALID": str(local)}
    os.environ |= {"SLURM_NTASKS": "4", "SLURM_NNODES": "2", "SLURM_TASKS_PER_NODE": "3,1"}
    folder, target = nodes[node], os.path.join(nodes[node], os.path.basename(source))
    seen = {"node": node, "reads": False, "in place": False, "elsewhere": False, "gone": False}

    def watch(event: str, args: tuple) -> None:
        if event == "open" and isinstance(args[0], str | os.PathLike):
            writes = (args[2] or 0) & (os.O_WRONLY | os.O_RDWR)
            seen["reads"] |= os.fspath(args[0]) == source and not writes
            seen["in place"] |= os.fspath(args[0]) == target and bool(writes)
        elif event == "os.rename" and os.path.abspath(os.fsdecode(args[1])) == target:
            seen["elsewhere"] |= not os.path.abspath(os.fsdecode(args[0])).startswith(folder + os.sep)
            sleep(RENAMING)
        elif event in ("subprocess.Popen", "os.system") and source in str(args):
            behind = re.findall(r"[^\s'\",\[\]]+", str(args).partition(source)[2])
            seen.update({"reads": True, "in place": behind[:1] in ([target], [folder])})
            sleep(RENAMING)

    latest = time.monotonic() + (LATE if local == TASKS - 1 else 0)
    while time.monotonic() < latest and not os.path.isfile(target):
        sleep(0.02)
    sys.addaudithook(watch)
    time.sleep = lambda seconds: sleep(min(seconds, NAP))
    world, dist.GroupMember.WORLD = dist.GroupMember.WORLD, None  # the tasks of the exercise have no process group
    try:
        result = answer(Path(source), Path(folder))
    except FileNotFoundError as error:
        if not str(error.filename).startswith((source, folder)):
            raise
        result, seen["gone"] = None, True
    finally:
        dist.GroupMember.WORLD, time.sleep = world, sleep
    seen["size"] = os.path.getsize(target) if os.path.isfile(target) else None
    path = os.path.normpath(result) if isinstance(result, str | os.PathLike) else show(result)
    names = {target: "the copy", folder: "the folder", source: "the source"}
    return seen | {"returned": names.get(path, "another path" if os.sep in path else path)}


def four_tasks(answer: Any, name: str, length: int) -> dict:
    """A probe: what each task did, None for those that wait forever; and what is left beside the copies."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as here:
        nodes = [os.path.join(os.path.realpath(here), node) for node in ("n1", "n2")]
        source = Path(os.path.realpath(here), "network", name)
        for folder in (*nodes, source.parent):
            os.mkdir(folder)
        source.write_bytes(bytes(length))
        outcome = ranks.start(answer, 1, task, (str(source), nodes), world_size=TASKS + 1, timeout=PATIENCE)
        if outcome.failed and outcome.failed.status in ("raised", "died"):
            ranks.judge(outcome)
        left = sorted({file for folder in nodes for file in os.listdir(folder) if file != name})
        return {"tasks": outcome.values, "left": left}


def judge(answer: Any, rng: Inputs) -> None:
    length = rng.size(50_000, 200_000)
    seen = observe(answer, four_tasks, f"digits{rng.size(2, 99)}.bin", length)
    waiting = [rank for rank, task in enumerate(seen["tasks"]) if task is None]
    tasks = [task for task in seen["tasks"] if task is not None]
    wrong_if(
        any(task["gone"] for task in tasks),
        "gone",
        "A file was gone when a task needed it: an earlier line, or another task, had moved or renamed it already.",
        look="which tasks copy: SLURM_LOCALID is 0 once on each node. The source has to stay for the other node",
    )
    wrong_if(
        waiting == [TASKS],
        "one_task",
        "Nobody copies on the second node, which sees only its own disk, so its task waits forever.",
        look="SLURM_LOCALID, which is 0 once on each node; SLURM_PROCID is 0 once in the job",
    )
    if waiting:
        look = (
            "whether a task copies, and renames its copy as the others expect; variables of the environment are strings"
        )
        raise Incorrect(f"Tasks {waiting} of {TASKS + 1} wait forever.", look=look)
    reads = [sum(task["reads"] for task in tasks if task["node"] == node) for node in range(2)]
    wrong_if(
        max(reads) > 1,
        "every_task",
        f"On the two nodes, {reads} tasks read the source, and each of them loads the network with the whole file.",
        look="SLURM_LOCALID, which is 0 once on each node",
        expected=[1, 1],
    )
    same(
        reads, [1, 1], "The number of tasks that read the source on each node", look="SLURM_LOCALID; a link is no copy"
    )
    wrong_if(
        any(task["in place"] for task in tasks),
        "in_place",
        "The copy grows under its final name, so a task that looks for this name may read half a file.",
        look="another name in the same folder, then `os.replace`",
    )
    wrong_if(
        any(task["elsewhere"] for task in tasks),
        "elsewhere",
        "The copy comes from outside the node's folder. That may be another disk, and between disks nothing can be "
        "renamed, only copied.",
        look="a temporary name in the same folder",
    )
    returned = next((task["returned"] for task in tasks if task["returned"] != "the copy"), "the copy")
    same(returned, "the copy", "What your function returns", look="the path `folder / source.name`")
    early = [rank for rank, task in enumerate(tasks) if task["size"] != length]
    wrong_if(
        early,
        "too_early",
        f"Tasks {early} return before their node has the copy: they do not wait for it.",
        look="a loop until the final name is there",
    )
    look = "rename the copy, rather than copy once more; its final name says that it is whole, without a second file"
    same(seen["left"], [], "What is left beside the copy", look=look)


exercise = Exercise(
    title="One copy for each node",
    minutes=12,
    difficulty=3,
    points=4,
    seconds=150.0,
    takeaway="SLURM_LOCALID 0 exists once on each node: it copies under another name and renames, and for all others "
    "the file's name alone means that it is whole.",
    hints=(
        "Every task runs this function. Which of Slurm's numbers is 0 exactly once on each node?",
        "That task copies to another name in the same folder and calls `os.replace`, which happens at once. The others "
        "wait in a loop until the final name exists, with a short `time.sleep` in it.",
        '`if os.environ["SLURM_LOCALID"] == "0":`, then `shutil.copyfile(source, part)` and '
        "`os.replace(part, target)`; for all: `while not target.exists(): time.sleep(0.02)`.",
    ),
    judge=judge,
)
