"""The board of a class: how many students of a hub have solved which exercise, and what they stumble over.

A hub that has one says so to its students' kernels by the environment variable TORCHCOURSE_BOARD, the address that
reports go to. After each check it gets the exercise, the state (not started, trying, correct) and the key of a known
misconception, and nothing else. Students who want no part in it:

    from labcheck import board
    board.leave()       # what was sent until now is taken back; board.join() to be counted again

or TORCHCOURSE_BOARD=off in the environment, and nothing is ever sent.

A report never holds up a check: a thread sends it, and a board that is away is tried again later, without a word.
"""

from __future__ import annotations

import json
import os
import textwrap
import threading
import urllib.error
import urllib.request
from dataclasses import asdict

from labcheck import reports
from labcheck.reports import NOT_STARTED, Report
from torchcourse import place

NEWS = (
    "Your class has a live board. After each check it gets the exercise, your state (not started, trying or correct) "
    "and, if it is a known one, the misconception; never your name or your code. "
    "To stay off it: from labcheck import board; board.leave()"
)
SECONDS = 3.0  # that the board has to answer
AGAIN = 20.0  # seconds until it is tried again
MOST = 200  # reports that wait

_lock = threading.Lock()
_waiting: dict[Report | None, None] = {}  # in order, each once; None takes all of them back
_sender: threading.Thread | None = None
_idle = threading.Event()  # set while nothing waits
_idle.set()
_said = _left = False


def address() -> str | None:
    """Where reports go; None if the hub has no board, or this student wants no part in it."""
    chosen = os.environ.get("TORCHCOURSE_BOARD")
    if not chosen or chosen == "off":
        return None
    return None if _left or reports.latest("board") == "off" else chosen


def send(report: Report | None) -> None:
    """Have a report sent, and return at once; without a board, do nothing. Raises nothing.

    report: None takes back all that this student has sent
    """
    global _sender
    try:
        if not address():
            return
        if report:
            announce()
        with _lock:
            if len(_waiting) < MOST:
                _waiting[report] = None
                _idle.clear()
            if not (_sender and _sender.is_alive()):  # none yet, or none in this process: it was forked
                _sender = threading.Thread(target=_work, name="torchcourse: board", daemon=True)
                _sender.start()
    except Exception:
        return  # no check fails because of the board


def announce() -> None:
    """Say, once, that there is a board and what it gets."""
    global _said
    if not _said and address():
        _said = True
        print(textwrap.fill(NEWS, 88, break_on_hyphens=False))


def flush(seconds: float = 10.0) -> bool:
    """Wait until nothing waits to be sent; False if that takes longer than `seconds`."""
    return _idle.wait(seconds)


def leave() -> None:
    """Take back what this student has sent, and send nothing more, from this notebook or another one."""
    global _left
    send(None)
    taken_back = flush(2 * SECONDS)
    _left = True
    reports.keep({"board": "off"})
    if taken_back:
        print("You are off the board of your class.")
    else:
        print("Nothing more is sent. The board does not answer: to take back what it has, join() and leave() later.")


def join() -> None:
    """Be counted again."""
    global _left
    _left = False
    reports.keep({"board": "on"})
    print("Your next checks count on the board of your class." if address() else "Your class has no board.")


def greet() -> None:
    """Where a class has a board, say so below the set-up cell, and tell the board that the chapter is open.

    Called while that cell runs: it imports this package. When it has ended, the chapter is known.
    """
    try:
        if not os.environ.get("TORCHCOURSE_BOARD"):
            return
        from IPython import get_ipython

        if not place.in_notebook():
            return
        events = get_ipython().events

        def opened(*_: object) -> None:
            events.unregister("post_run_cell", opened)
            if place.chapter:
                send(Report(place.chapter, NOT_STARTED))

        events.register("post_run_cell", opened)
    except Exception:
        return


def _work() -> None:
    """Send what waits, one after the other, until nothing does."""
    global _sender
    pause = threading.Event()
    while True:
        with _lock:
            if not _waiting or not (to := address()):
                _waiting.clear()
                _sender = None  # the next report needs another thread, though this one still has a moment to live
                _idle.set()
                return
            report = next(iter(_waiting))
        if _delivered(report, to):
            with _lock:
                _waiting.pop(report, None)
        else:
            pause.wait(AGAIN)


def _delivered(report: Report | None, to: str) -> bool:
    """Send one report. False if it is worth another try: the board is away or busy."""
    request = urllib.request.Request(
        to,
        data=None if report is None else json.dumps(asdict(report)).encode(),
        method="DELETE" if report is None else "POST",
        headers={
            "Authorization": f"token {os.environ.get('JUPYTERHUB_API_TOKEN', '')}",
            "Content-Type": "application/json",
            "User-Agent": "torchcourse",
        },
    )
    try:
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=SECONDS):
            return True
    except urllib.error.HTTPError as error:
        return error.code < 500 and error.code != 429  # refused: it would be again
    except Exception:
        return False
