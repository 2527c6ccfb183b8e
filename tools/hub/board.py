"""The board of the class: how many students have solved which exercise, and what they stumble over. Live, no names.

A service of the hub, switched on by `make hub OPTIONS=--board`. Students' kernels report to it (labcheck/board.py),
the instructor looks at its page.

Who may do what is the hub's to say. A student's token holds the scope REPORT and opens nothing here but the door for
reports; the page is for users with access to the service: admins, and the group GROUP.

A report comes from a student's own machine, so it may say anything. All of it is compared with what the course knows
(reports.known), and nothing else is kept: no text of a report ever reaches the page. What one student has said counts
once, however often it comes. Students are told apart by a number made of their name and of a secret that is never
written down; counts are in memory only, and end with the hub.
"""

import asyncio
import hashlib
import hmac
import json
import os
import secrets
import shutil
import signal
import sys
import time
from collections.abc import Callable, Hashable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from jupyterhub.services.auth import HubOAuth, HubOAuthCallbackHandler, HubOAuthenticated
from jupyterhub.services.service import Service
from tornado.escape import xhtml_escape
from tornado.httpserver import HTTPServer
from tornado.web import Application, HTTPError, RequestHandler, authenticated

from tools.course import ROOT, chapters
from tools.hub.settings import BOARD

REPORT = "custom:board:report"
GROUP = "instructors"
PAGE = Path(__file__).with_name("board.html")
LONGEST = 500  # bytes of a report
STUDENTS = 2000  # that are counted; with one password for all, anyone can be many


def register(c: Any, port: int) -> None:
    """Add the board to the hub's configuration `c`."""
    tied = ["setpriv", "--pdeathsig", "KILL", "--"] if shutil.which("setpriv") else []  # it ends with the hub, always
    c.JupyterHub.custom_scopes = {REPORT: {"description": "Report to the board of the class."}}
    c.JupyterHub.load_groups = {GROUP: {"users": []}}
    c.JupyterHub.load_roles = [
        {"name": "user", "scopes": ["self", REPORT]},
        {"name": GROUP, "groups": [GROUP], "scopes": [f"access:services!service={BOARD}"]},
    ]
    c.JupyterHub.services = [
        {
            "name": BOARD,
            "url": f"http://127.0.0.1:{port}",
            "command": [*tied, sys.executable, "-m", "tools.hub.board"],
            "cwd": str(ROOT),
            "environment": {"PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1"},
            "oauth_no_confirm": True,
            # JupyterHub 6 waits 30 seconds by default, and stops for good if a busy machine takes longer.
            **({"timeout": 120} if hasattr(Service, "timeout") else {}),
        }
    ]
    c.Spawner.server_token_scopes = token_scopes
    c.Spawner.environment["TORCHCOURSE_BOARD"] = f"http://127.0.0.1:{port}/services/{BOARD}/report"


def token_scopes(spawner: Any) -> list[str]:
    """What a server's token may do: as ever, and report; but the instructor's own notebooks don't count."""
    return ["users:activity!user", "access:servers!server", *([] if spawner.user.admin else [REPORT])]


class Allowance:
    """What each key may do: `burst` times at once, then once every `seconds`.

    It keeps one number for each key: when its allowance will be whole again.
    """

    def __init__(self, burst: int, seconds: float, clock: Callable[[], float] = time.monotonic):
        self.burst, self.seconds, self.clock = burst, seconds, clock
        self.whole: dict[Hashable, float] = {}

    def wait(self, key: Hashable) -> float:
        """Seconds until the key may do it again; 0 if it may now."""
        owed = self.whole.get(key, 0) - self.clock()
        return max(0.0, owed - (self.burst - 1) * self.seconds)

    def spend(self, key: Hashable) -> None:
        """Count that the key has done it once."""
        now = self.clock()
        if len(self.whole) >= 1000:
            self.whole = {key: whole for key, whole in self.whole.items() if whole > now}
        self.whole[key] = max(now, self.whole.get(key, 0)) + self.seconds


class Board:
    """What is counted, and for whom."""

    def __init__(self) -> None:
        self.secret = secrets.token_bytes()
        self.rate = Allowance(burst=60, seconds=1)  # reports of one student
        self.titles = {chapter.name: f"{chapter.number} · {chapter.title}" for chapter in chapters()}
        self.ready = False

    def load(self) -> None:
        """Learn what the course knows. It takes seconds, with PyTorch, and the hub waits for the service to answer."""

        from labcheck import reports

        reports.exercises()
        self.reports, self.students = reports, reports.Class()
        self.ready = True

    def number(self, name: str) -> str:
        """A student's number: no way leads back to the name, and it changes with each start."""
        return hmac.digest(self.secret, name.encode(), hashlib.sha256).hex()

    def add(self, student: str, body: bytes) -> None:
        """Count a report. Raises ValueError for what is none."""
        report = self.reports.known(json.loads(body))
        if student in self.students.students or len(self.students.students) < STUDENTS:
            self.students.add(student, report)

    def remove(self, student: str) -> None:
        """Forget a student."""
        self.students.students.pop(student, None)

    def table(self) -> dict[str, Any]:
        """What the page shows."""
        table = self.students.table()
        for chapter in table["chapters"]:
            chapter["title"] = self.titles[chapter["chapter"]]
        return table


class Handler(HubOAuthenticated, RequestHandler):
    """What all answers have in common."""

    @property
    def board(self) -> Board:
        return self.settings["board"]

    def set_default_headers(self) -> None:
        self.set_header("Cache-Control", "no-store")
        self.set_header("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'; base-uri 'none'")
        self.set_header("Referrer-Policy", "no-referrer")
        self.set_header("X-Content-Type-Options", "nosniff")

    async def prepare(self) -> None:
        await self.hub_auth.get_user(self, sync=False)  # remembered: what asks for it later does not have to wait

    def log_exception(self, kind: Any, error: Any, where: Any) -> None:
        if not isinstance(error, HTTPError):  # a flood of what we refuse would fill the log
            super().log_exception(kind, error, where)

    def write_error(self, status_code: int, **_: Any) -> None:
        self.finish({"error": self._reason})


class Page(Handler):
    """The page itself, for the instructor."""

    @authenticated
    def get(self) -> None:
        nonce = secrets.token_urlsafe()
        policy = f"default-src 'none'; connect-src 'self'; script-src 'nonce-{nonce}'; style-src 'nonce-{nonce}'"
        self.set_header("Content-Security-Policy", f"{policy}; frame-ancestors 'none'; base-uri 'none'")
        page = PAGE.read_text(encoding="utf-8").replace("NONCE", nonce)
        # What the page fetches needs it: another student's page in the same browser is not to fetch the counts.
        self.finish(page.replace("XSRF", xhtml_escape(self.xsrf_token)))


class Counts(Handler):
    """The counts, which the page fetches every few seconds."""

    def get(self) -> None:
        if self.current_user is None:
            raise HTTPError(403)
        if not self.board.ready:
            raise HTTPError(503)
        self.finish(self.board.table())


class Reports(Handler):
    """The door for students' kernels: a token, and no cookie, opens it."""

    def check_xsrf_cookie(self) -> None:
        """A token in a header is nothing that another page could make a browser send."""

    async def prepare(self) -> None:
        token = self.hub_auth.get_token(self, in_cookie=False)
        user = token and await self.hub_auth.user_for_token(token, sync=False)
        if not user or user["kind"] != "user" or REPORT not in user["scopes"]:
            raise HTTPError(403)
        if not self.board.ready:
            raise HTTPError(503)
        self.student = self.board.number(user["name"])
        if wait := self.board.rate.wait(self.student):
            self.set_header("Retry-After", int(wait) + 1)
            raise HTTPError(429)
        self.board.rate.spend(self.student)

    def post(self) -> None:
        try:
            self.board.add(self.student, self.request.body)
        except (ValueError, RecursionError):
            raise HTTPError(400) from None
        self.set_status(204)

    def delete(self) -> None:
        self.board.remove(self.student)
        self.set_status(204)


def application(prefix: str, board: Board) -> Application:
    """The pages of the service below its prefix."""
    pages = [("", Page), ("counts", Counts), ("report", Reports), ("oauth_callback", HubOAuthCallbackHandler)]
    handlers = [(prefix + path, handler) for path, handler in pages]
    # Nothing is logged for each request: a log would say who asked when.
    return Application(handlers, board=board, cookie_secret=os.urandom(32), log_function=lambda handler: None)


async def main() -> None:
    """Serve until the hub ends this process."""
    here, board = urlsplit(os.environ["JUPYTERHUB_SERVICE_URL"]), Board()
    HubOAuth.instance(cache_max_age=60)  # seconds: a flood of invented tokens fills no memory
    server = HTTPServer(
        application(os.environ["JUPYTERHUB_SERVICE_PREFIX"], board),
        max_body_size=LONGEST,
        max_header_size=2**15,
        idle_connection_timeout=60,
        body_timeout=10,
    )
    server.listen(here.port, here.hostname)
    await asyncio.to_thread(board.load)
    await asyncio.Event().wait()


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # the hub's way to end it: at once, as there is nothing to save
    asyncio.run(main())
