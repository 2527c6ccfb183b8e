"""The board of the class: how many students have solved which exercise, and what they stumble over. Live, no names.

A service of the hub, switched on by `make hub OPTIONS=--board`. Students' kernels report to it (labcheck/board.py),
the instructor looks at its page.

Who may do what is the hub's to say (hub/jupyterhub_config.py). A student's token holds the scope REPORT and opens
nothing here but the door for reports; the page is for users with access to the service: admins, and the group
`instructors`.

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
import signal
import time
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from jupyterhub.services.auth import HubOAuth, HubOAuthCallbackHandler, HubOAuthenticated
from tornado.escape import xhtml_escape
from tornado.httpserver import HTTPServer
from tornado.web import Application, HTTPError, RequestHandler, authenticated

from labcheck import reports
from tools.course import chapters
from tools.hub.settings import REPORT

LONGEST = 500  # bytes of a report
STUDENTS = 2000  # that are counted; with one password for all, anyone can be many
BURST = 60  # reports that one student may send at once; then one a second


class Board:
    """What is counted, and for whom."""

    def __init__(self) -> None:
        self.secret = secrets.token_bytes()
        self.titles = {chapter.name: f"{chapter.number} · {chapter.title}" for chapter in chapters()}
        self.students = reports.Class()
        self.whole: dict[str, float] = {}  # student -> when they may send BURST reports at once again

    def allows(self, student: str) -> bool:
        """Whether this student may send one more now, which then counts."""
        now = time.monotonic()
        whole = max(now, self.whole.get(student, 0)) + 1
        if whole > now + BURST:
            return False
        self.whole[student] = whole
        return True

    def add(self, student: str, body: bytes) -> None:
        """Count a report. Raises ValueError for what is none."""
        report = reports.known(json.loads(body))
        if student in self.students.students or len(self.students.students) < STUDENTS:
            self.students.add(student, report)

    def table(self) -> dict[str, Any]:
        """What the page shows."""
        table = self.students.table()
        for chapter in table["chapters"]:
            chapter["title"] = self.titles[chapter["chapter"]]
        return table


class Handler(HubOAuthenticated, RequestHandler):
    """What all answers have in common."""

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


class Page(Handler):
    """The page itself, for the instructor."""

    @authenticated
    def get(self) -> None:
        nonce = secrets.token_urlsafe()
        policy = f"default-src 'none'; connect-src 'self'; script-src 'nonce-{nonce}'; style-src 'nonce-{nonce}'"
        self.set_header("Content-Security-Policy", f"{policy}; frame-ancestors 'none'; base-uri 'none'")
        page = Path(__file__).with_name("board.html").read_text(encoding="utf-8").replace("NONCE", nonce)
        # What the page fetches needs it: another student's page in the same browser is not to fetch the counts.
        self.finish(page.replace("XSRF", xhtml_escape(self.xsrf_token)))


class Counts(Handler):
    """The counts, which the page fetches every few seconds."""

    def get(self) -> None:
        if self.current_user is None:
            raise HTTPError(403)
        self.finish(self.settings["board"].table())


class Reports(Handler):
    """The door for students' kernels: a token, and no cookie, opens it."""

    def check_xsrf_cookie(self) -> None:
        """A token in a header is nothing that another page could make a browser send."""

    async def prepare(self) -> None:
        token = self.hub_auth.get_token(self, in_cookie=False)
        user = token and await self.hub_auth.user_for_token(token, sync=False)
        if not user or user["kind"] != "user" or REPORT not in user["scopes"]:
            raise HTTPError(403)
        # No way leads back from this number to the name, and it changes with each start.
        self.board = self.settings["board"]
        self.student = hmac.digest(self.board.secret, user["name"].encode(), hashlib.sha256).hex()
        if not self.board.allows(self.student):
            raise HTTPError(429)

    def post(self) -> None:
        try:
            self.board.add(self.student, self.request.body)
        except (ValueError, RecursionError):
            raise HTTPError(400) from None
        self.set_status(204)

    def delete(self) -> None:
        self.board.students.students.pop(self.student, None)
        self.set_status(204)


async def main() -> None:
    """Serve until the hub ends this process."""
    here, prefix = urlsplit(os.environ["JUPYTERHUB_SERVICE_URL"]), os.environ["JUPYTERHUB_SERVICE_PREFIX"]
    reports.exercises()  # loads what the course knows, once
    HubOAuth.instance(cache_max_age=60)  # seconds: a flood of invented tokens fills no memory
    pages = [("", Page), ("counts", Counts), ("report", Reports), ("oauth_callback", HubOAuthCallbackHandler)]
    application = Application(
        [(prefix + path, handler) for path, handler in pages],
        board=Board(),
        cookie_secret=os.urandom(32),
        log_function=lambda handler: None,  # a log of requests would say who asked when
    )
    server = HTTPServer(
        application, max_body_size=LONGEST, max_header_size=2**15, idle_connection_timeout=60, body_timeout=10
    )
    server.listen(here.port, here.hostname)
    await asyncio.Event().wait()


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # the hub's way to end it: at once, as there is nothing to save
    asyncio.run(main())
