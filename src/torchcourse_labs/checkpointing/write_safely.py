"""Write a file that is never half: over an older one, with errors in the middle, before a power failure."""

import os
import sys
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from labcheck import ranks
from labcheck.authoring import Exercise, Inputs, equal, same, wrong_if

FILE = "run.pt"
FOREIGN = {"other.tmp", f"{FILE}.other.part"}  # of other processes that are writing, too
TROUBLES = ("a state that cannot be saved", "a rename that fails", "a KeyboardInterrupt")


def solution(state: dict, path: Path) -> None:
    temporary = path.with_name(f"{path.name}.{uuid.uuid4()}.part")
    try:
        with open(temporary, "wb") as file:
            torch.save(state, file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def writing(answer: Callable, older: dict, newer: dict) -> dict[str, dict[str, Any]]:
    """On a rank: how the answer writes, where there is no file yet, over an older one, and in trouble."""
    now: dict[str, Any] = {}  # what is seen in the present case
    fsync, synced, seen = os.fsync, set(), {}

    def note(file: Any = None) -> None:
        """In place of `fsync`, and of `sync`, which takes no argument."""
        if file is None:
            synced.add("all")
        else:
            fsync(file)
            about = os.fstat(file if isinstance(file, int) else file.fileno())
            synced.add((about.st_ino, about.st_size))

    def hook(event: str, args: tuple) -> None:
        if now and event in ("os.remove", "os.rename"):
            source, *target = (os.path.abspath(os.fsdecode(each)) for each in args if not isinstance(each, int))
            now["gap"] |= source == now["path"]
            if target == [now["path"]]:
                about, (folder, name) = os.stat(source), os.path.split(source)
                now["names"].append(name)
                now["elsewhere"] |= folder != os.path.dirname(now["path"])
                now["synced"] = bool({"all", (about.st_ino, about.st_size)} & synced)
                if now["trouble"] in TROUBLES[1:]:
                    raise PermissionError(1, "Not permitted") if now["trouble"] == TROUBLES[1] else KeyboardInterrupt

    getattr(answer, "__globals__", {}).update(fsync=note)  # for `from os import fsync`
    os.fsync = os.fdatasync = os.sync = note
    sys.addaudithook(hook)
    for case in ("an empty folder", "an older file", *TROUBLES):
        path = Path(f"{case} {dist.get_rank()}", FILE)  # relative, and so are the names in error messages
        path.parent.mkdir()
        for name in FOREIGN:
            path.with_name(name).touch()
        if case != "an empty folder":
            torch.save(older, path)
        state = newer | ({"loss": lambda: 0} if case == "a state that cannot be saved" else {})
        now = {"path": os.path.abspath(path), "trouble": case, "gap": False, "elsewhere": False, "names": []}
        try:
            answer(state, path)
        except BaseException:
            if case not in TROUBLES:
                raise
            now["raised"] = True
        seen[case], now = now, {}
        seen[case]["files"] = sorted(file.name for file in path.parent.iterdir())
        try:
            seen[case]["found"] = torch.load(path) if path.exists() else "no file"
        except Exception:
            seen[case]["found"] = "an unreadable file"
    return seen


def judge(answer: Any, rng: Inputs) -> None:
    older, newer = ({"weights": rng.randn(1), "epoch": rng.size(0, 60)} for _ in range(2))  # Python buffers all of it
    one, other = ranks.observe(answer, writing, older, newer, look="no rank waits here")
    files, over = sorted({FILE} | FOREIGN), one["an older file"]
    look = "`os.replace(temporary, path)`; `open(temporary, 'wb')` empties a file that is there already"
    for case in ("an empty folder", "an older file"):
        same(one[case]["found"], newer, "What `torch.load` finds at `path`", look=look)
    wrong_if(
        over["gap"] or not over["names"],
        "in_place",
        "At some moment, there is no whole file at `path`: you write into it, or remove or rename it first. A process "
        "that is killed then has lost the older file, too.",
        look="write under another name; when all is written, `os.replace(temporary, path)` puts it in place at once",
    )
    wrong_if(
        over["elsewhere"],
        "other_folder",
        "You write in another folder. That may be another disk, and a rename cannot move a file between disks.",
        look="a second name in the folder of `path`: `path.with_name(…)`",
    )
    wrong_if(
        not over["synced"],
        "not_on_disk",
        "When the file got its name, not all of it was on the disk: after a power failure, it may be empty.",
        look="`file.flush()`, then `os.fsync(file.fileno())`, both before the rename",
    )
    wrong_if(
        {*over["names"]} & {*other["an older file"]["names"]} or any(FOREIGN - {*at["files"]} for at in one.values()),
        "shared_name",
        "Two processes that write at the same time use the same temporary name, or one removes the file of the other.",
        look="a name that no other process has: with `uuid.uuid4()` in it, or from `tempfile.mkstemp`",
    )
    same(over["files"], files, "The list of files in the folder", look="`os.replace` renames, so that nothing is left")
    for trouble in TROUBLES:
        left = one[trouble]["found"]
        wrong_if(
            "raised" not in one[trouble] and not equal(left, newer, unknown=False),
            "swallowed",
            f"With {trouble}, your function returns as if all were well. The caller has to learn of it.",
            look="an `except` without `raise`",
        )
        look = "rename only if everything before it has worked, and clean up `temporary`, not `path`"
        same(left, older if "raised" in one[trouble] else newer, f"What is at `path` after {trouble}", look=look)
        wrong_if(
            one[trouble]["files"] != files,
            "litter",
            f"With {trouble}, what you had begun to write stays in the folder.",
            look="clean up in `finally:`, with all from `open` to `os.replace` in the `try:`; Ctrl+C is no `Exception`",
            expected=files,
            yours=one[trouble]["files"],
        )


exercise = Exercise(
    title="Write a file that is never half",
    minutes=8,
    difficulty=3,
    points=3,
    takeaway="Write beside, flush, fsync, rename: whatever ends the process, there is a whole file under the name. "
    "`torchcourse.checkpoint.save` does this.",
    hints=(
        "Write the whole file under another name in the same folder, one that no other process uses. When all of it is "
        "on the disk, a rename puts it in place of the old file at once.",
        "`with open(temporary, 'wb') as file:`, and in it `torch.save(state, file)`, `file.flush()`, and "
        "`os.fsync(file.fileno())`. Then `os.replace(temporary, path)`. All of this goes into a `try:`; in the "
        "`finally:`, `temporary.unlink(missing_ok=True)` cleans up.",
    ),
    judge=judge,
    lends=solution,
    seconds=ranks.SECONDS,
)
