"""Where another process is right now: a signal makes Python write its stack, even inside a call that never returns.

Each rank of `%%torchrun` and of a check has begun with `faulthandler.register`; they are asked when the time is up. The
main thread writes its own stack, and no others: those would go on meanwhile.
"""

import contextlib
import os
import re
import signal
import time
from collections.abc import Callable, Iterable
from pathlib import Path

LIMIT = 30.0  # seconds until a process has said where it is
AGAIN = 3.0  # seconds until it is asked once more: between two lines of Python, a stack may come out in part
HEADER = "(most recent call first):"  # a stack begins below it
ESCAPED = re.compile(r"\\(x[0-9a-f]{2}|u[0-9a-f]{4}|U[0-9a-f]{8})")
FRAME = re.compile(r'^  File "(.*)", line (\d+) in (.*)$', re.M)


def stacks(processes: dict[int, Path], outermost: str) -> list[str]:
    """What each process writes; processes: the file of each by its number. Less than all of it if that takes too long.

    outermost: the function in which a process begins, where the text ends
    """
    for number in processes:
        _ask(number)
    start = asked = time.monotonic()
    found = []
    for number, file in processes.items():
        while not re.search(outermost, text := _read(file)) and time.monotonic() < start + LIMIT:
            if time.monotonic() > asked + AGAIN:
                asked = time.monotonic()
                _ask(number)
            time.sleep(0.05)
        found.append(text)
    return found


def _ask(number: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(number, signal.SIGUSR1)


def _read(file: Path) -> str:
    """The last stack that a process has written. faulthandler writes ASCII only: the ü of a folder comes as \\xfc."""
    text = file.read_text("utf-8", "replace") if file.exists() else ""
    return ESCAPED.sub(lambda code: chr(int(code[1][1:], 16)), text[max(0, text.rfind(HEADER)) :])


def place(stack: str, is_own: Callable[[str], bool]) -> tuple[str, int, str | None] | None:
    """The user's innermost line in a stack: its file, its number, and the call that waits there for others."""
    frames = FRAME.findall(stack)  # innermost first
    own = next((i for i, (file, _, _) in enumerate(frames) if is_own(file)), None)
    if own is None:
        return None
    inner = ((file, name) for file, _, name in reversed(frames[:own]))
    return frames[own][0], int(frames[own][1]), waiting_call(inner)


def waiting_call(frames: Iterable[tuple[str, str]]) -> str | None:
    """The call that waits for other ranks: a function of torch.distributed, or a backward pass.

    frames: (file, function), from the user's line inward
    """
    for file, name in frames:
        if f"torch{os.sep}distributed{os.sep}" in file and name not in ("wrapper", "<module>", "_fn"):
            return None if name.startswith(("get_", "is_")) else name  # those only ask for ranks and groups
        if name == "backward" and f"torch{os.sep}" in file:
            return name
        if f"nn{os.sep}parallel{os.sep}distributed" in file:
            return "DistributedDataParallel" if name == "__init__" else name
    return None
