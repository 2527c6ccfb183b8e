"""A running `make hub`, and who comes to it: students in a browser, programs with a token."""

import contextlib
import http.client
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from urllib.parse import urlsplit

import nbformat
import psutil
from conftest import wait_until

from labcheck import reports
from labcheck.reports import TRYING
from tools.course import ROOT
from tools.hub import publish

PICTURES = ROOT / "build" / "screenshots"
PASSWORD = "a word for the class"
MEMORY = 2  # GiB for each student
PATIENCE = 150_000  # milliseconds for whatever a browser waits for; generous, as the machine may be busy
LAB = "01_tensors"
ENTRY = f"labs/{LAB}.ipynb"

# Answers to the exercise scale_pixels, and what the course says about the wrong ones.
RIGHT = "lambda x: x / 255"
WRONG = {
    "lambda x: x / 256": "White should be exactly 1: the largest pixel value is 255, not 256.",
    "lambda x: x.float()": "Your values still go up to 255: divide by 255.",
    "lambda x: x // 255": "Everything but pure white has become 0.",
    "lambda x: x / x.max()": "so a dark picture comes out as bright as others.",
}
GOOD = {"exercise": "scale_pixels", "state": TRYING, "misconception": None}  # a report


def key(exercise: str, words: str) -> str:
    """The key of the misconception whose sentence has these words."""
    (found,) = [key for key, sentence in reports.misconceptions(exercise).items() if words in sentence]
    return found


def notebook(path: Path) -> nbformat.NotebookNode:
    """A notebook, which must be valid: raises if anything, git included, has broken it."""
    found = nbformat.read(path, nbformat.NO_CONVERT)
    nbformat.validate(found)
    return found


def position(cell_id: str) -> int:
    """Where a cell is in the lab."""
    return [cell.id for cell in notebook(ROOT / ENTRY).cells].index(cell_id)


class Hub:
    """A running `python -m tools.hub`, with a board."""

    def __init__(self, state: Path, data: Path):
        self.state, self.data, self.said = state, data, state / "said"
        words = ["--port", "0", "--state", str(state), "--password", PASSWORD, "--data", str(data)]
        words += ["--memory", str(MEMORY), "--board"]
        with self.said.open("w") as said:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "tools.hub", *words], cwd=ROOT, stdout=said, stderr=subprocess.STDOUT
            )
        wait_until(lambda: "Ctrl-C" in self.text or self.process.poll() is not None, "the hub")
        found = re.search(r"^The hub is up: (\S+)$", self.text, re.M)
        log = state / "hub.log"
        assert found, f"the hub did not start:\n{self.text}\n{log.read_text()[-3000:] if log.exists() else ''}"
        self.address = found[1]
        self.instructors_password = re.search(r"instructor, password (\S+)", self.text)[1]

    @property
    def text(self) -> str:
        """Everything printed so far."""
        return self.said.read_text()

    def home(self, name: str) -> Path:
        """The student's copy of the course."""
        return self.state / "home" / name / publish.course_name()

    def processes(self, student: str = "") -> list[psutil.Process]:
        """The hub, its proxy, servers, kernels: all that know the folder of the hub. Or those of one student."""
        found = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                environment = process.environ()
                known = any(str(self.state) in word for word in (*process.cmdline(), *environment.values()))
                if known and process.pid != os.getpid() and student in ("", environment.get("JUPYTERHUB_USER")):
                    found.append(process)
        return found


class Student:
    """A person in front of a browser."""

    def __init__(self, chromium, hub: Hub, name: str):
        self.hub, self.name = hub, name
        self.page = chromium.new_context(viewport={"width": 1280, "height": 860}).new_page()
        self.page.set_default_timeout(PATIENCE)

    def look(self, what: str) -> None:
        self.page.screenshot(path=PICTURES / f"hub-{what}.png")

    def sign_in(self, password: str, name: str = "") -> None:
        self.page.fill("#username_input", name or self.name)
        self.page.fill("#password_input", password)
        self.page.click("#login_submit")

    def wait_for_lab(self) -> None:
        self.page.wait_for_selector(".jp-Notebook .jp-Cell")
        self.page.get_by_text("Python 3 (ipykernel) | Idle").wait_for()

    def cell(self, cell_id: str):
        return self.page.locator(".jp-Notebook .jp-Cell").nth(position(cell_id))

    def output(self, cell_id: str, words: str):
        """The output of a cell, once it contains the words."""
        found = self.cell(cell_id).locator(".jp-OutputArea-output", has_text=words).first
        found.wait_for()
        return found

    def answer(self, cell_id: str, text: str) -> None:
        """Write into a cell what a student would, and run it; the next cell is then the current one."""
        self.cell(cell_id).locator(".cm-content").click()
        self.page.keyboard.press("Control+A")
        self.page.keyboard.insert_text(text)
        self.page.keyboard.press("Shift+Enter")


class Api:
    """Asks the hub, and its board, with a user's token."""

    def __init__(self, address: str, token: str = ""):
        self.address, self.headers = urlsplit(address), {"Authorization": f"token {token}"} if token else {}

    def ask(self, method: str, path: str, body: object = None, **headers: str) -> tuple[int, object]:
        line = http.client.HTTPConnection(self.address.netloc, timeout=PATIENCE / 1000)
        with contextlib.closing(line):
            data = body if isinstance(body, bytes | None) else json.dumps(body).encode()
            line.request(method, path, data, self.headers | headers)
            answer = line.getresponse()
            text = answer.read().decode()
            with contextlib.suppress(ValueError):
                return answer.status, json.loads(text)
            return answer.status, text

    def report(self, body: object) -> int:
        return self.ask("POST", "/services/board/report", body)[0]
