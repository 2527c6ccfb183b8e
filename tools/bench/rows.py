"""Measured rows, each written down as soon as it is there: an interrupted measurement goes on where it was.

The file has one line of JSON per row: {"commit", "device", "torch", "date", "dtype", "name", "value"}. A row that was
measured for the same commit, device, dtype and PyTorch is not measured again. A part that is complete removes its file.
"""

import datetime
import hashlib
import importlib.metadata
import json
import re
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tools.course import ROOT

AFTER = 30.0  # seconds that a process may run past the time limit; `tools.gpu` waits longer before it stops a part


class OutOfTime(Exception):
    """The time limit has passed; the rows measured so far are in the file."""


class Rows:
    """Values by name and dtype.

    path: the file; None keeps them in memory.
    key: what all values depend on: commit, device, torch. Rows with another key are left alone and don't count.
    minutes: no row begins after so many minutes; None means no limit.
    """

    def __init__(self, path: Path | None = None, key: dict[str, str] | None = None, minutes: float | None = None):
        self.path, self.key = path, key or {}
        self.deadline = None if minutes is None else time.monotonic() + 60 * minutes
        self.known: dict[tuple[str, str], Any] = {}
        self.date = ""  # of the oldest row
        text = path.read_text() if path and path.exists() else ""
        whole = text[: text.rfind("\n") + 1]
        if whole != text:  # stopped while writing the last line
            path.write_text(whole)
        for row in map(json.loads, whole.splitlines()):
            if all(row[name] == value for name, value in self.key.items()):
                self.known[row["name"], row["dtype"]] = row["value"]
                self.date = min(self.date or row["date"], row["date"])
        self.found = len(self.known)

    @property
    def over(self) -> bool:
        """Whether the time limit has passed."""
        return self.deadline is not None and time.monotonic() >= self.deadline

    def patience(self, seconds: float) -> float:
        """How long to wait for a process: `seconds`, but not far beyond the time limit."""
        return seconds if self.deadline is None else min(seconds, max(0.0, self.deadline - time.monotonic()) + AFTER)

    def __call__(self, name: str, dtype: str, measure: Callable[..., Any], *arguments: Any) -> Any:
        """The row's value: the one in the file, or what `measure(*arguments)` returns now.

        A dict with "error" is returned but not kept, so the next run tries again; after the time limit, which may be
        what stopped it, it counts as OutOfTime.
        """
        if (name, dtype) in self.known:
            return self.known[name, dtype]
        if self.over:
            raise OutOfTime
        value = measure(*arguments)
        if isinstance(value, dict) and "error" in value:
            if self.over:
                raise OutOfTime
            return value
        value = json.loads(json.dumps(value))  # as it will be read back
        self.known[name, dtype] = value
        today = datetime.date.today().isoformat()
        self.date = self.date or today
        if self.path:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self.path.open("a") as file:
                file.write(json.dumps(self.key | {"date": today, "dtype": dtype, "name": name, "value": value}) + "\n")
        return value

    def finish(self) -> None:
        """The part is complete and its results are written: the next run measures again."""
        if self.path:
            self.path.unlink(missing_ok=True)


def key(device: str, root: Path = ROOT) -> dict[str, str]:
    """What the rows of this machine depend on."""
    return {"commit": commit(root), "device": device, "torch": importlib.metadata.version("torch")}


def commit(root: Path = ROOT) -> str:
    """The commit that is measured. Where sources were changed since, or there is no git: with a digest of them."""

    def git(*words: str) -> str | None:
        try:
            done = subprocess.run(["git", "-C", str(root), *words], capture_output=True, text=True)
        except OSError:
            return None
        return None if done.returncode else done.stdout.strip()

    folders = ("tools/bench", "src/torchcourse")
    name = git("rev-parse", "--short=12", "HEAD") if (root / ".git").exists() else None
    if name and git("status", "--porcelain", "--", *(f"{folder}/*.py" for folder in folders)) == "":
        return name
    files = sorted(path for folder in folders for path in (root / folder).rglob("*.py"))
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in files)).hexdigest()[:12]
    return f"{name or 'no commit'}, changed: {digest}"


def last_words(log: str) -> str:
    """The line of a failed process's log that names the error, without folders of this machine: it may be recorded."""
    lines = [line for line in log.splitlines() if line.strip() and not line[0].isspace()]
    named = [line for line in lines if re.match(r"(\[rank\d+\]: ?)?[\w.]*(Error|Exception|Interrupt)\b", line)]
    return re.sub(r"(/[\w.~+-]+)+/", "", (named or lines or ["it printed nothing"])[-1])
