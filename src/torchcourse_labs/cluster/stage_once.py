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
from labcheck.authoring import Exercise, Inputs, observe, same, show, wrong_if

TASKS = 3  # on the first node, so that no remainder of SLURM_PROCID is 0 once on each node
RENAMING = 1.0  # seconds that the node's disk takes to rename a file, and a command to start
NAP = 0.2  # seconds that a task sleeps at most, so that sleeping is not enough
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


def task(answer: Callable, source: str) -> dict:
    """One of the tasks, in a process of its own: what it does with files. (They are relative, as in error messages.)"""
    rank, sleep = int(os.environ["RANK"]), time.sleep
    node, local = divmod(rank, TASKS)
    os.environ |= {"SLURM_PROCID": str(rank), "SLURM_NODEID": str(node), "SLURM_LOCALID": str(local)}
    os.environ |= {"SLURM_NTASKS": "4", "SLURM_NNODES": "2", "SLURM_TASKS_PER_NODE": "3,1"}
    folder = f"n{node}"
    target = os.path.join(folder, os.path.basename(source))
    seen = {"reads": False, "grows": None}

    def relative(path: Any) -> str:
        return os.path.relpath(os.fsdecode(path))

    def watch(event: str, args: tuple) -> None:
        if event == "open" and isinstance(args[0], str | os.PathLike):
            writes = (args[2] or 0) & (os.O_WRONLY | os.O_RDWR)
            seen["reads"] |= relative(args[0]) == source and not writes
            if relative(args[0]) == target and writes:
                seen["grows"] = "under its final name"
        elif event == "os.rename" and relative(args[1]) == target:
            if not relative(args[0]).startswith(folder + os.sep):
                seen["grows"] = "in another folder"
            sleep(RENAMING)
        elif event in ("subprocess.Popen", "os.system") and source in str(args):
            seen["reads"] = True
            behind = re.findall(r"[^\s'\",\[\]]+", str(args).partition(source)[2])
            if behind and relative(behind[0]) in (target, folder):
                seen["grows"] = "under its final name"
            sleep(RENAMING)

    sys.addaudithook(watch)
    time.sleep = lambda seconds: sleep(min(seconds, NAP))
    world, dist.GroupMember.WORLD = dist.GroupMember.WORLD, None  # the tasks of the exercise have no process group
    try:
        result = answer(Path(source), Path(folder))
    finally:
        dist.GroupMember.WORLD, time.sleep = world, sleep
    path = relative(result) if isinstance(result, str | os.PathLike) else show(result)
    return seen | {"returned": path, "size": os.path.getsize(target) if os.path.isfile(target) else None}


def four_tasks(answer: Any, source: str, length: int) -> dict:
    """A probe: what each task did, None for those that wait forever; and what is left on the nodes."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as here:
        for folder in ("n0", "n1", os.path.dirname(source)):
            Path(here, folder).mkdir()
        Path(here, source).write_bytes(bytes(length))
        outcome = ranks.start(answer, 1, task, (source,), world_size=TASKS + 1, timeout=PATIENCE, folder=here)
        if outcome.failed and outcome.failed.status in ("raised", "died"):
            ranks.judge(outcome)
        return {"tasks": outcome.values, "left": [sorted(os.listdir(Path(here, node))) for node in ("n0", "n1")]}


def judge(answer: Any, rng: Inputs) -> None:
    name, length = f"digits{rng.size(2, 99)}.bin", rng.size(50_000, 200_000)
    seen = observe(answer, four_tasks, f"network/{name}", length)
    waiting = [rank for rank, task in enumerate(seen["tasks"]) if task is None]
    wrong_if(
        waiting,
        "wait_forever",
        f"Tasks {waiting} of {TASKS + 1} wait forever: nobody gives the copy on their node's disk its final name.",
        look="SLURM_LOCALID, a string, is 0 once on each node, SLURM_PROCID once in the job; then the rename",
    )
    reads = [task["reads"] for task in seen["tasks"]]
    look = "SLURM_LOCALID, which is 0 once on each node; a link is no copy"
    counts = [sum(reads[:TASKS]), sum(reads[TASKS:])]
    same(counts, [1, 1], "The number of tasks that read the source, on each node,", look=look)
    grows = next((task["grows"] for task in seen["tasks"] if task["grows"]), None)
    wrong_if(
        grows,
        "grows",
        f"The copy grows {grows}: a task may read half a file under its final name, and another folder may be on "
        "another disk, from which nothing can be renamed.",
        look="a temporary name in the same folder, then `os.replace`",
    )
    for rank, task in enumerate(seen["tasks"]):
        look = "the path `folder / source.name`"
        same(task["returned"], f"n{rank // TASKS}/{name}", f"What your function returns in task {rank}", look=look)
    sizes, look = [task["size"] for task in seen["tasks"]], "a loop until the final name is there"
    same(sizes, [length] * (TASKS + 1), "The list of sizes that the copy has when each task returns", look=look)
    look = "rename the copy, rather than copy once more; its final name says that it is whole, without a second file"
    same(seen["left"], [[name], [name]], "The list of files on each node", look=look)


exercise = Exercise(
    title="One copy for each node",
    minutes=12,
    difficulty=3,
    points=4,
    seconds=150.0,
    takeaway="SLURM_LOCALID 0 exists once on each node: it copies under another name and renames, and for all others "
    "the file's name alone means that it is whole.",
    hints=(
        "Every task runs this function. Which of Slurm's numbers is 0 exactly once on each node? That task copies to "
        "another name in the same folder and renames. The others wait in a loop, with a short `time.sleep` in it.",
        '`if os.environ["SLURM_LOCALID"] == "0":`, then `shutil.copyfile(source, part)` and '
        "`os.replace(part, target)`; for all: `while not target.exists(): time.sleep(0.02)`.",
    ),
    judge=judge,
)
