"""One line of the report, and how it comes about: an examination is a function, a limit of time, and a fix."""

from __future__ import annotations

import getpass
import importlib
import os
import re
import socket
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from torchcourse import place
from torchcourse.errors import CourseError

Answer = tuple[bool | None, str, str]  # (ok, found, fix), see Finding


@dataclass(frozen=True)
class Finding:
    """One line of the report.

    ok: True is fine, False needs a fix, None is worth knowing: the course runs anyway.
    found: what is there; fix: what to do, "" when there is nothing to do; seconds: how long the examination took.
    """

    name: str
    ok: bool | None
    found: str
    fix: str = ""
    seconds: float = 0.0


@dataclass(frozen=True)
class Examination:
    """What is looked at: `look` answers within `limit` seconds, or `hangs` says what to do about it."""

    look: Callable[[], Answer] | str  # a function, or where it is in this package: "machine.threads"
    limit: float = 5.0
    hangs: str = "Try again. If it hangs again, restart the machine, or tell its administrator."


def ask(name: str, examination: Examination) -> Finding:
    """Examine one thing. Raises nothing, and returns when the limit is reached, whatever the examination does."""
    answers: list[Answer] = []

    def look() -> None:
        try:
            answers.append(_function(examination.look)())
        except CourseError as error:  # its message says what to do
            answers.append((False, "could not be examined", str(error)))
        except Exception as error:  # a strange machine must not hide the other findings
            answers.append((None, f"could not be examined ({type(error).__name__}: {error})", ""))

    start = time.perf_counter()
    # A thread, because it can be left behind when it hangs: in a system call on a dead network disk, for example.
    thread = threading.Thread(target=look, name=f"doctor: {name}", daemon=True)
    thread.start()
    thread.join(examination.limit)
    seconds = time.perf_counter() - start
    hung = (False, f"no answer within {examination.limit:g} s", examination.hangs)
    ok, found, fix = answers[0] if answers else hung
    return Finding(name, ok, without_machine(without_user(found)), without_user(fix), round(seconds, 3))


def _function(look: Callable[[], Answer] | str) -> Callable[[], Answer]:
    if callable(look):
        return look
    module, _, name = look.partition(".")
    return getattr(importlib.import_module(f"torchcourse.commands.doctor.{module}"), name)


def without_user(text: str) -> str:
    """The text without the user's name in its paths: reports are pasted into forums and pooled."""
    try:
        home, user = str(place.home()), getpass.getuser()
    except (OSError, KeyError, CourseError):  # a container whose user has neither home nor name
        return text
    if len(home) > 1:
        text = re.sub(rf"(?<![\w/.]){re.escape(home)}(?=/|\b)", "~", text)
    return re.sub(rf"(?<=/){re.escape(user)}(?=/)", "$USER", text)


def without_machine(text: str) -> str:
    """The text without the name of this machine, as errors of the network have it."""
    name = socket.gethostname()
    return re.sub(rf"(?<![\w.-]){re.escape(name)}(?![\w-])", "HOST", text) if len(name) > 2 else text


def shown(path: Path) -> str:
    """A path in few words."""
    if str(path) == os.environ.get("TORCHCOURSE_DATA"):
        return "$TORCHCOURSE_DATA"
    if path == Path(sys.prefix):
        return f"the environment {path.name}"
    return str(path)
