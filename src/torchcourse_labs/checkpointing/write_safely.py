"""Write a file that is never half: killed in the middle, on a full disk, before a power failure."""

import os
import signal
import sys
import uuid
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch

from labcheck import ranks
from labcheck.authoring import Exercise, Inputs, equal, same, wrong_if

FILE = "run.pt"
FOREIGN = f"{FILE}.other.part"  # of another process that is writing, too


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


def place(name: str, older: dict | None) -> Path:
    """A path in a new folder, perhaps with an older file. (It is relative, and so are the names in error messages.)"""
    path = Path(name, FILE)
    path.parent.mkdir()
    path.with_name(FOREIGN).touch()
    if older:
        torch.save(older, path)
    return path


def in_a_fork(*tasks: Callable[[], Any]) -> bool:
    """Run tasks in a process of their own. Returns whether they came to their end, without an error."""
    pid = os.fork()
    if pid == 0:
        try:
            [task() for task in tasks]
            os._exit(0)
        finally:
            os._exit(1)
    return os.waitpid(pid, 0)[1] == 0


def limit_files(action: signal.Handlers) -> None:
    """From now on, the kernel lets no file of this process grow beyond 16 KiB; with SIG_DFL, it kills the process."""
    import resource  # not on Windows

    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (2**14, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))
    signal.signal(signal.SIGXFSZ, action)


def refuse_renames(event: str, args: tuple) -> None:
    if event in ("os.rename", "os.link"):
        raise PermissionError(1, "Operation not permitted")


def watch(answer: Callable, state: dict, path: Path) -> None:
    """Write over an older file, and note what happens: ("remove", path), ("rename", path, new path), ("sync",), or
    ("fsync", the number of the file, its size). The notes go into a file beside the folder."""
    events, fsync, older = [], os.fsync, f"{path.parent}.older"

    def hook(event: str, args: tuple) -> None:
        if event in ("os.remove", "os.rename"):
            paths = [os.path.abspath(os.fsdecode(each)) for each in args if not isinstance(each, int)]
            events.append((event[3:], *paths))

    def note(file: Any) -> None:
        fsync(file)
        about = os.fstat(file if isinstance(file, int) else file.fileno())
        events.append(("fsync", about.st_ino, about.st_size))

    getattr(answer, "__globals__", {}).update(fsync=note)  # for `from os import fsync`
    os.fsync, os.fdatasync, os.sync = note, note, lambda: events.append(("sync",))
    os.link(path, older)  # so that no other file gets its number
    sys.addaudithook(hook)
    answer(state, path)
    names = [os.path.basename(event[1]) for event in events if event[0] == "rename"]
    seen = {"events": [*events], "temporary": names, "path": os.path.abspath(path), "in place": path.samefile(older)}
    torch.save(seen | {"fsync": ("fsync", path.stat().st_ino, path.stat().st_size)}, f"{path.parent}.pt")


def crashing(answer: Callable, older: dict, newer: dict) -> dict[str, Any]:
    """On a rank: what becomes of a file while the answer writes it, and is disturbed."""

    def after(path: Path) -> tuple[Any, list[str]]:
        names = sorted(file.name for file in path.parent.iterdir() if file.name != FOREIGN)
        try:
            return torch.load(path) if path.exists() else "no file", names
        except Exception:
            return "an unreadable file", names

    seen: dict[str, Any] = {"quiet": [], "troubles": {}, "watched": []}
    for name, old in (("new", None), ("over", older)):
        path = place(name, old)
        answer(newer, path)
        seen["quiet"].append(after(path))
    path = place("killed", older)
    in_a_fork(partial(limit_files, signal.SIG_DFL), partial(answer, newer, path))
    seen["killed"] = after(path)[0]
    for trouble, prepare, more in (
        ("a full disk", partial(limit_files, signal.SIG_IGN), {}),
        ("a state that cannot be saved", dict, {"loss": lambda: 0}),
        ("a rename that fails", partial(sys.addaudithook, refuse_renames), {}),
    ):
        path = place(trouble, older)
        returned = in_a_fork(prepare, partial(answer, newer | more, path))
        seen["troubles"][trouble] = (returned, *after(path))
    for name in ("one", "other"):  # so small that Python may hold all of it until `flush`
        in_a_fork(partial(watch, answer, newer | {"weights": newer["weights"][:1].clone()}, place(name, older)))
        seen["watched"].append(torch.load(f"{name}.pt"))
    return seen | {"foreign": len([*Path().rglob(FOREIGN)])}


def judge(answer: Any, rng: Inputs) -> None:
    older, newer = ({"weights": rng.randn(8_000), "epoch": rng.size(0, 60)} for _ in range(2))
    seen = ranks.observe(answer, crashing, older, newer, world_size=1, look="")[0]
    for found, names in seen["quiet"]:
        same(found, newer, "What `torch.load` finds at `path`", look="`os.replace(temporary, path)`")
        same(names, [FILE], "The list of files in the folder", look="`os.replace` renames, so that nothing is left")
    wrong_if(
        not equal(seen["killed"], older, unknown=False),
        "killed",
        "A process that is killed while your function writes has lost the older file.",
        look="another name first; when all is written, `os.replace(temporary, path)`",
        yours=seen["killed"],
    )
    one, other = seen["watched"]
    judge_replacing(one)
    wrong_if(
        {*one["temporary"]} & {*other["temporary"]} or seen["foreign"] != 8,
        "shared_name",
        "Two processes that write at the same time use the same temporary name, or one removes the file of the other.",
        look="a name that no other process has: with `uuid.uuid4()` in it, or from `tempfile.mkstemp`",
    )
    for trouble, (returned, left, names) in seen["troubles"].items():
        saved = equal(left, newer, unknown=False)
        wrong_if(
            returned and not saved,
            "swallowed",
            f"With {trouble}, your function returns as if all were well. The caller has to learn of it.",
            look="an `except` without `raise`",
        )
        wrong_if(
            not saved and not equal(left, older, unknown=False),
            "lost",
            f"With {trouble}, the older file is lost.",
            look="rename only if everything before it has worked, and clean up `temporary`, not `path`",
            yours=left,
        )
        wrong_if(
            names != [FILE],
            "litter",
            f"With {trouble}, what you had begun to write stays in the folder: {names}.",
            look="clean up after every error: `finally:`, with everything from `open` to `os.replace` in the `try:`",
        )


def judge_replacing(seen: dict[str, Any]) -> None:
    path, events = seen["path"], [tuple(event) for event in seen["events"]]
    renamed = [i for i, event in enumerate(events) if event[0] == "rename" and event[2] == path]
    wrong_if(
        seen["in place"] is not False,
        "in_place",
        "You write into the file at `path` itself: a process that is killed in the middle leaves half a file.",
        look="`os.replace(temporary, path)`, which happens all at once",
    )
    wrong_if(
        any(event[0] in ("remove", "rename") and event[1] == path for event in events),
        "gap",
        "The older file is removed, or renamed, before the new one has its name: `os.replace` does both at once.",
    )
    wrong_if(
        any(os.path.dirname(events[i][1]) != os.path.dirname(path) for i in renamed),
        "other_folder",
        "You write in another folder. That may be another disk, and a rename cannot move a file between disks.",
        look="a second name in the folder of `path`: `path.with_name(…)`",
    )
    wrong_if(
        not {("sync",), tuple(seen["fsync"])} & {*events[: renamed[-1] if renamed else None]},
        "not_on_disk",
        "When the file got its name, not all of it was on the disk: after a power failure, it may be empty.",
        look="`file.flush()`, then `os.fsync(file.fileno())`, both before the rename",
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
        "`with open(temporary, 'wb') as file:` gives you something to `file.flush()` and `os.fsync(file.fileno())`. "
        "Then `os.replace(temporary, path)`. In a `finally:`, `temporary.unlink(missing_ok=True)` cleans up.",
        'A name of your own: `path.with_name(f"{path.name}.{uuid.uuid4()}.part")`. Into a `try:` go `torch.save(state, '
        "file)`, `file.flush()`, `os.fsync(file.fileno())`, and, after the `with` block, "
        "`os.replace(temporary, path)`.",
    ),
    judge=judge,
    lends=solution,
    seconds=120.0,  # the first check of a session starts the server from which processes are forked
)
