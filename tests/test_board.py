"""The board of a class: what students' kernels keep and send, what the hub's service counts, what its page shows.

One hub serves the tests of its part. Pictures of the page: build/screenshots/board-*.png.
"""

import asyncio
import contextlib
import http.client
import json
import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from urllib.parse import urlsplit

import pytest
from test_hub import PASSWORD, PATIENCE, PICTURES, Hub, wait_until
from tornado.httpclient import AsyncHTTPClient, HTTPRequest
from tornado.websocket import websocket_connect

from labcheck import board, check, reports
from labcheck.__main__ import main as progress_command
from labcheck.reports import CORRECT, NOT_STARTED, TRYING, Report
from tools.course import ROOT
from tools.hub import sandbox

LAB = "01_tensors"
WRONG = {  # the answers of simulated students, and what the sentence about each says
    "lambda x: x / 256": "White should be exactly 1: the largest pixel value is 255, not 256.",
    "lambda x: x.float()": "Your values still go up to 255: divide by 255.",
    "lambda x: x // 255": "Everything but pure white has become 0.",
    "lambda x: x / 127.5 - 1": "Your values are centered around 0; here they should go from 0 to 1.",
}
RIGHT = "lambda x: x / 255"
STUB = "lambda x: None"
A, B, C, D = WRONG
# name -> the answers to scale_pixels, one after the other
CLASS = {
    **{f"solved{i}": [A, RIGHT] for i in range(5)},
    **{f"quick{i}": [RIGHT] for i in range(3)},
    **{f"stuck{i}": [A, B, "lambda x: no_such_name"] for i in range(3)},
    **{f"lost{i}": [C, B] for i in range(2)},
    "alone": [D],
    **{f"late{i}": [STUB] for i in range(6)},
}
# 20 students: 8 correct, 6 trying, 6 not started. A was met by 8, B by 5, C by 2, D by 1.


def key(exercise: str, words: str) -> str:
    """The key of the misconception whose sentence has these words."""
    (found,) = [key for key, sentence in reports.misconceptions(exercise).items() if words in sentence]
    return found


@pytest.fixture
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file of a student who has not done anything yet."""
    monkeypatch.setenv("TORCHCOURSE_PROGRESS", str(tmp_path / "state" / "progress.jsonl"))
    monkeypatch.delenv("NBGRADER_EXECUTION", raising=False)
    return tmp_path / "state" / "progress.jsonl"


# ------------------------------------------------------------------------------------------------- what a student keeps


def test_a_check_is_kept(mine: Path, capsys):
    """Exercise, state, misconception; and nothing of the answer, the time or the student."""
    for answer in (STUB, A, "lambda x: print(x.no_such_name)", RIGHT, A):
        check("scale_pixels", eval(answer))
    check("no_such_exercise", 1)
    first, *lines = [json.loads(line) for line in mine.read_text().splitlines()]
    assert first.keys() == {"student"} and re.fullmatch("[0-9a-f]{16}", first["student"])
    assert {tuple(line) for line in lines} == {("exercise", "state", "misconception")}
    known = key("scale_pixels", "not 256")
    expected = [(NOT_STARTED, None), (TRYING, known), (TRYING, None), (CORRECT, None)]
    assert [(line["state"], line["misconception"]) for line in lines] == expected, "the same again says nothing new"
    assert {line["exercise"] for line in lines} == {"scale_pixels"}
    assert mine.stat().st_mode & 0o077 == 0

    capsys.readouterr()
    assert progress_command(["progress"]) == 0
    out = capsys.readouterr().out
    assert "01_tensors: 1 of 6 correct" in out and "correct       Pixels to floats" in out
    assert progress_command(["progress", "--json"]) == 0
    sent = json.loads(capsys.readouterr().out)
    assert sent.keys() == {"format", "torchcourse", "student", "reports"}
    assert {"exercise": "scale_pixels", "state": TRYING, "misconception": known} in sent["reports"]


def test_nothing_is_kept_where_nobody_learns(mine: Path, monkeypatch: pytest.MonkeyPatch):
    """In grading, or where it is switched off; and a disk that refuses fails no check."""
    with monkeypatch.context() as patch:
        patch.setenv("NBGRADER_EXECUTION", "autograde")
        check("scale_pixels", eval(RIGHT))
    with monkeypatch.context() as patch:
        patch.setenv("TORCHCOURSE_PROGRESS", "off")
        check("scale_pixels", eval(RIGHT))
        assert reports.mine()[1].states == {}
    assert not mine.parent.exists()
    mine.parent.touch()  # a file where the folder should be
    check("scale_pixels", eval(RIGHT))


def test_every_misconception_has_a_sentence():
    """A key and a sentence for each, without values of any student's answer."""
    for name in reports.exercises():
        for known, sentence in reports.misconceptions(name).items():
            assert re.fullmatch(r"\w+", known) and sentence, name
    assert reports.misconceptions("shard_indices")["overlap"] == "The shards overlap: index … is in more than one."


WRITER = """
import sys
from labcheck.reports import Report, keep
for i in range(200):
    keep(Report(f"{sys.argv[1]}{i}", "correct"))
"""


def test_kernels_write_at_once(mine: Path):
    """Lines of several notebooks don't mix, and what is no line of ours is skipped."""
    with contextlib.ExitStack() as stack:
        running = [
            stack.enter_context(subprocess.Popen([sys.executable, "-c", WRITER, name])) for name in ("one", "two")
        ]
    assert not any(each.returncode for each in running)
    lines = [json.loads(line) for line in mine.read_text().splitlines() if line]
    assert {line["exercise"] for line in lines if "exercise" in line} == {
        f"{name}{i}" for name in ("one", "two") for i in range(200)
    }

    known = key("scale_pixels", "pure white")
    with mine.open("ab") as file:
        file.write(b'\n{"exercise": "scale_pixels", "sta')  # the disk was full
    reports.keep(Report("scale_pixels", TRYING, known))
    with mine.open("ab") as file:
        file.write(
            b"\n\xff\xfe\x00" + b"[" * 100_000 + b'\n[1]\n"x"\n{"student": 7}\n{"student": "0123456789abcdef"}\n'
        )
        file.write(b'{"exercise": ["scale_pixels"], "state": "correct", "misconception": null}\n' + b"x" * 1_000_000)
    reports.keep(Report("view_or_copy", CORRECT))
    student, found = reports.mine()
    assert found.states == {"scale_pixels": TRYING, "view_or_copy": CORRECT} and found.met == {"scale_pixels": {known}}
    assert student == lines[0]["student"]


# ------------------------------------------------------------------------------------------------- strict and counted

GOOD = {"exercise": "scale_pixels", "state": TRYING, "misconception": None}
FORGED = [
    None,
    7,
    [GOOD],
    {},
    GOOD | {"name": "ada"},
    GOOD | {"exercise": "<script>alert(1)</script>"},
    GOOD | {"exercise": "no_such_exercise"},
    GOOD | {"exercise": None},
    GOOD | {"exercise": ["scale_pixels"]},
    GOOD | {"exercise": LAB},  # a chapter can only be open
    GOOD | {"exercise": "01_Tensors", "state": NOT_STARTED},
    GOOD | {"state": "green"},
    GOOD | {"state": ["trying"]},
    GOOD | {"state": None},
    GOOD | {"misconception": "<img src=x onerror=alert(1)>"},
    GOOD | {"misconception": 1e999},
    GOOD | {"misconception": ["x"]},
    GOOD | {"misconception": {}},
]


@pytest.mark.parametrize("given", FORGED, ids=str)
def test_forged_reports_are_refused(given: object):
    """Whatever is not a report of this course, down to the last key."""
    with pytest.raises(ValueError):
        reports.known(given)


def test_a_misconception_belongs_to_its_exercise():
    """Not to another student, and only to someone who is trying."""
    one, other = key("scale_pixels", "pure white"), key("normalize", "variance")
    assert reports.known(GOOD | {"misconception": one}) == Report("scale_pixels", TRYING, one)
    assert reports.known({"exercise": LAB, "state": NOT_STARTED, "misconception": None}).exercise == LAB
    for wrong in ({"misconception": other}, {"misconception": one, "state": CORRECT}):
        with pytest.raises(ValueError):
            reports.known(GOOD | wrong)


def files_of(folder: Path, students: dict[str, list[Report]]) -> list[str]:
    """What the students of a class have sent to the instructor."""
    for i, (name, sent) in enumerate(students.items()):
        one = reports.Standing()
        for report in sent:
            one.add(report)
        (folder / f"{name}.json").write_text(reports.as_json(f"{i:016x}", one))
    return [str(folder / f"{name}.json") for name in students]


def test_a_class_is_pooled(tmp_path: Path, capsys):
    """Each student once, with the furthest state, and the misconceptions that most have met."""
    a, b, c, d = (Report("scale_pixels", TRYING, key("scale_pixels", sentence)) for sentence in WRONG.values())
    right = Report("scale_pixels", CORRECT)
    files = files_of(
        tmp_path,
        {
            "one": [a, b, a, a, right, a],
            "two": [b, d],
            "three": [b, a, c],
            "four": [Report(LAB, NOT_STARTED)],
            "five": [Report("slope", TRYING)],
        },
    )
    assert progress_command(["progress", "--pool", *files, files[0]]) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert lines[0] == ["5", "students"] and ["01_tensors,", "4", "students"] in lines
    at = lines.index(["Pixels", "to", "floats", "1", "2", "1"])
    (table,) = reports.pooled(map(Path, files))[0].table()["chapters"][:1]
    told = [(each["students"], each["sentence"]) for each in table["exercises"][0]["misconceptions"]]
    sentences = list(WRONG.values())
    assert told[:2] == [(3, sentences[1]), (2, sentences[0])] and told[2][0] == 1 and len(told) == 3
    assert lines[at + 1] == ["3", "×", *sentences[1].split()]
    assert "four" not in str(table) and str(tmp_path) not in str(table)

    for name, content in (
        ("html", b"<html>"),
        ("deep", b"[" * 50_000),
        ("big", b" " * 2_000_000),
        ("form", b'{"format": 2}'),
    ):
        (tmp_path / f"{name}.json").write_bytes(content)
        files.append(str(tmp_path / f"{name}.json"))
    (tmp_path / "old.json").write_text(
        json.dumps({"format": 1, "student": "f" * 16, "reports": [vars(right), GOOD | {"exercise": "gone"}, 7]})
    )
    assert (
        progress_command(["progress", "--pool", *files, str(tmp_path / "old.json"), str(tmp_path / "none.json")]) == 1
    )
    said = capsys.readouterr()
    assert said.out.startswith("6 students") and said.err.count("\n") == 6
    assert "2 of its reports" in said.err and "another form" in said.err and "cannot be read" in said.err


# ------------------------------------------------------------------------------------------------- what a student sends


class Wire:
    """Takes down every request in full, and answers it, or hands it on to the real board and answers as that does."""

    def __init__(self, to: str = "", status: int = 204):
        self.requests: list[tuple[str, dict[str, str], bytes]] = []
        self.to, self.status = to, status
        wire = self

        class Handler(BaseHTTPRequestHandler):
            def take(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                wire.requests.append((f"{self.command} {self.path}", dict(self.headers), body))
                status = wire.status
                if wire.to:
                    line = http.client.HTTPConnection(urlsplit(wire.to).netloc, timeout=60)
                    with contextlib.closing(line):
                        line.request(self.command, urlsplit(wire.to).path, body, dict(self.headers))
                        status = line.getresponse().status
                self.send_response(status)
                self.end_headers()

            do_POST = do_DELETE = do_GET = take

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.address = f"http://127.0.0.1:{self.server.server_port}/report"

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()

    @property
    def bodies(self) -> list[object]:
        return [json.loads(body) for _, _, body in self.requests if body]


@pytest.fixture
def wire() -> Iterator[Wire]:
    """A board that only listens."""
    made = Wire()
    yield made
    made.close()


@pytest.fixture
def student(mine: Path, wire: Wire, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A student whose hub has a board."""
    monkeypatch.setenv("TORCHCOURSE_BOARD", wire.address)
    monkeypatch.setenv("JUPYTERHUB_API_TOKEN", "the-random-token")
    monkeypatch.setenv("JUPYTERHUB_USER", "adalovelace")
    for name in ("_said", "_left"):
        monkeypatch.setattr(board, name, False)
    return mine


def test_what_is_sent(student: Path, wire: Wire, capsys):
    """Three keys under a token; first the student reads that there is a board."""
    secret = "a_word_in_my_code"
    check("scale_pixels", lambda x: (secret, x / 256)[1])
    check("scale_pixels", lambda x: x.a_word_in_my_code)
    assert board.flush()
    out = capsys.readouterr().out
    assert out.count("Your class has a live board") == 1 and "board.leave()" in out
    known = key("scale_pixels", "not 256")
    assert wire.bodies == [GOOD | {"misconception": known}, GOOD]
    for line, headers, body in wire.requests:
        assert line == "POST /report"
        assert headers.keys() == {
            *("Accept-Encoding", "Authorization", "Connection", "Content-Length", "Content-Type", "Host", "User-Agent")
        }
        assert headers["User-Agent"] == "torchcourse" and headers["Authorization"] == "token the-random-token"
        assert not re.search("ada|lovelace|a_word_in_my_code|lambda", f"{line} {headers} {body}")


def test_who_stays_off_sends_nothing(student: Path, wire: Wire, monkeypatch: pytest.MonkeyPatch, capsys):
    """By the variable, not a byte. By the call, what was sent is taken back, in every notebook, until they join."""
    with monkeypatch.context() as patch:
        patch.setenv("TORCHCOURSE_BOARD", "off")
        check("scale_pixels", eval(RIGHT))
        assert board.flush() and wire.requests == [] and "live board" not in capsys.readouterr().out
    board.leave()
    assert [line for line, *_ in wire.requests] == ["DELETE /report"] and not wire.bodies
    check("scale_pixels", eval(A))
    monkeypatch.setattr(board, "_left", False)  # another notebook of the same student
    check("scale_pixels", eval(A))
    assert board.flush() and len(wire.requests) == 1 and board.address() is None
    assert "live board" not in capsys.readouterr().out
    board.join()
    check("scale_pixels", eval(A))
    assert board.flush() and len(wire.bodies) == 1


def test_a_board_that_is_away_holds_up_nothing(student: Path, wire: Wire, monkeypatch: pytest.MonkeyPatch, capsys):
    """A server that never answers: the check returns at once. Busy ones are asked again; what they refuse is not."""
    asked = threading.Event()
    monkeypatch.setattr(board, "_delivered", lambda report, to: asked.wait(60))
    for _ in range(300):
        board.send(Report("scale_pixels", TRYING))
    check("scale_pixels", eval(RIGHT))
    assert not asked.is_set() and not board.flush(0) and "✓ scale_pixels: correct" in capsys.readouterr().out
    asked.set()
    assert board.flush()
    monkeypatch.undo()

    for status, again in ((503, True), (429, True), (500, True), (400, False), (403, False), (404, False)):
        wire.status = status
        assert board._delivered(Report("scale_pixels", TRYING), wire.address) is not again
    wire.close()
    assert board._delivered(Report("scale_pixels", TRYING), wire.address) is False


# -------------------------------------------------------------------------------------------------------- the real hub


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


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hub]:
    """A hub with a board."""
    data = tmp_path_factory.mktemp("data")
    data.chmod(0o755)
    running = Hub(tmp_path_factory.mktemp("hub"), data, "--board")
    yield running
    running.process.terminate()
    running.process.wait(60)


@pytest.fixture(scope="module")
def instructor(hub: Hub) -> SimpleNamespace:
    """The instructor: a password for the browser, a token for the rest."""
    password = re.search(r"instructor, password (\S+)", hub.text)[1]
    auth = {"auth": {"username": "instructor", "password": password}}
    _, said = Api(hub.address).ask("POST", "/hub/api/users/instructor/tokens", auth)
    page = re.search(r"^The class, live.*: (\S+/services/board/)$", hub.text, re.M)[1]
    api = Api(hub.address, said["token"])
    wait_until(lambda: api.ask("GET", "/services/board/counts")[0] == 200, "the board has read the course")
    return SimpleNamespace(password=password, api=api, page=page)


def enrolled(hub: Hub, instructor: SimpleNamespace, *names: str) -> dict[str, str]:
    """Students of these names, each with a token that may do what that of their server may."""
    instructor.api.ask("POST", "/hub/api/users", {"usernames": names})
    scopes = {"scopes": ["custom:board:report"]}
    made = {name: instructor.api.ask("POST", f"/hub/api/users/{name}/tokens", scopes)[1] for name in names}
    return {name: each["token"] for name, each in made.items()}


def counts(instructor: SimpleNamespace) -> dict:
    return instructor.api.ask("GET", "/services/board/counts")[1]


def row(instructor: SimpleNamespace, exercise: str = "scale_pixels") -> dict:
    """The row of an exercise on the board."""
    rows = [each for chapter in counts(instructor)["chapters"] for each in chapter["exercises"]]
    return next(each for each in rows if each["exercise"] == exercise)


# One process imports PyTorch, then becomes each student in turn: a child with the variables of a student's kernel.
STUDENTS = """
import json, os, sys
from labcheck import board
from labcheck import check, exercise
exercise.find("scale_pixels")
status = 0
for name, given in json.load(sys.stdin).items():
    if not (child := os.fork()):
        os.environ.update(given["environment"])
        for answer in given["answers"]:
            check("scale_pixels", eval(answer))
        os._exit(not board.flush(60))
    status |= os.waitpid(child, 0)[1]
sys.exit(bool(status))
"""


@pytest.fixture(scope="module")
def lesson(hub: Hub, instructor: SimpleNamespace, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Wire]:
    """Twenty students have answered; what went over the wire."""
    wire = Wire(to=f"{hub.address}/services/board/report")
    folder = tmp_path_factory.mktemp("states")
    given = {
        name: {
            "answers": CLASS[name],
            "environment": {
                "TORCHCOURSE_BOARD": wire.address,
                "TORCHCOURSE_PROGRESS": str(folder / f"{name}.jsonl"),
                "JUPYTERHUB_API_TOKEN": token,
                "JUPYTERHUB_USER": name,
            },
        }
        for name, token in enrolled(hub, instructor, *CLASS).items()
    }
    done = subprocess.run(
        [sys.executable, "-u", "-c", STUDENTS],
        input=json.dumps(given),
        capture_output=True,
        text=True,
        timeout=PATIENCE / 1000,
    )
    assert not done.returncode, done.stdout[-2000:] + done.stderr[-2000:]
    assert done.stdout.count("Your class has a live board") == len(CLASS) == 20
    yield wire
    wire.close()


def test_twenty_students(lesson: Wire, instructor: SimpleNamespace):
    """The right counts, the three most frequent misconceptions, and no more than that went over the wire."""
    found = row(instructor)
    assert found["states"] == {NOT_STARTED: 6, TRYING: 6, CORRECT: 8}
    told = [(each["students"], each["sentence"]) for each in found["misconceptions"]]
    assert told == [(8, WRONG[A]), (5, WRONG[B]), (2, WRONG[C])]
    assert row(instructor, "normalize")["states"] == {NOT_STARTED: 20, TRYING: 0, CORRECT: 0}
    assert len(lesson.requests) == sum(len(set(answers)) for answers in CLASS.values())
    for (_, headers, _), body in zip(lesson.requests, lesson.bodies, strict=True):
        assert reports.known(body) and body.keys() == GOOD.keys()
        assert not re.search("|".join([*CLASS, "lambda", "255"]), f"{headers | {'Authorization': ''}} {body}")
    assert not re.search(
        "|".join([*CLASS, "lambda", *(f["Authorization"][6:] for _, f, _ in lesson.requests)]), str(counts(instructor))
    )


# What the instructor's browser must not show or do: any HTML of a report.
HOSTILE = [
    json.dumps(GOOD | {"exercise": "<b id=evil>scale_pixels</b>"}).encode(),
    json.dumps(GOOD | {"misconception": "<script id=evil>document.title = 'evil'</script>"}).encode(),
    *(json.dumps(each).encode() for each in FORGED if isinstance(each, dict)),
    b"",
    b"\xff\xfe",
    b"[" * 400,
    b"1" * 499,
    b'{"exercise": "scale_pixels", "state": "correct", "misconception": NaN}',
    b"<html><script id=evil>alert(1)</script>",
]


def test_hostile_reports_are_refused(lesson: Wire, hub: Hub, instructor: SimpleNamespace):
    """Garbage, forgeries and floods change nothing; only a student's token reports, and it opens nothing else."""
    before = counts(instructor)
    (token,) = enrolled(hub, instructor, "mallory").values()
    mallory = Api(hub.address, token)
    assert [mallory.report(each) for each in HOSTILE] == [400] * len(HOSTILE)
    with contextlib.suppress(OSError):  # the board hangs up on what is too long, and the proxy may say that in its way
        assert mallory.report(b" " * 100_000) in (400, 413, 503)
    with contextlib.suppress(OSError):
        mallory.ask("POST", "/services/board/report", b"x", **{"Content-Length": str(2**40)})
    for path in ("", "counts", "report", "../board/counts", "oauth_callback?code=x&state=x"):
        status, said = mallory.ask("GET", f"/services/board/{path}")
        assert status in (302, 400, 403, 404, 405) and "chapters" not in str(said)
    for other in (Api(hub.address), Api(hub.address, "invented")):
        assert other.report(GOOD) == 403 and other.ask("DELETE", "/services/board/report")[0] == 403
    _, plain = instructor.api.ask("POST", "/hub/api/users/mallory/tokens", {"scopes": ["read:users:name!user"]})
    assert Api(hub.address, plain["token"]).report(GOOD) == 403
    assert counts(instructor) == before

    # A flood counts for one student, and ends soon; the others do not notice.
    started = time.monotonic()
    flood = [mallory.report(GOOD | {"state": CORRECT}) for _ in range(150)]
    assert flood.count(204) <= 60 + time.monotonic() - started and set(flood) == {204, 429}
    assert row(instructor)["states"] == {NOT_STARTED: 6, TRYING: 6, CORRECT: 9}
    (token,) = enrolled(hub, instructor, "nina").values()
    nina = Api(hub.address, token)
    assert nina.report(GOOD) == 204 and row(instructor)["states"][TRYING] == 7
    assert nina.ask("DELETE", "/services/board/report")[0] == 204
    assert row(instructor)["states"] == {NOT_STARTED: 6, TRYING: 6, CORRECT: 9}


def test_the_page(lesson: Wire, hub: Hub, instructor: SimpleNamespace, chromium):
    """The instructor sees it after the login, it refreshes by itself and needs nothing from elsewhere."""
    PICTURES.mkdir(parents=True, exist_ok=True)
    page = chromium.new_context(viewport={"width": 1280, "height": 720}).new_page()
    page.set_default_timeout(PATIENCE)
    asked, problems = [], []
    page.on("request", lambda request: asked.append(request.url))
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on("console", lambda said: problems.append(said.text) if said.type in ("error", "warning") else None)
    page.goto(instructor.page)
    page.fill("#username_input", "instructor")
    page.fill("#password_input", instructor.password)
    page.click("#login_submit")
    first = page.get_by_role("row", name=re.compile("Pixels to floats"))
    first.wait_for()
    assert page.url == instructor.page
    states = row(instructor)["states"]
    cells = [cell.inner_text() for cell in first.get_by_role("cell").all()]
    assert cells[:3] == [str(states[state]) for state in (NOT_STARTED, TRYING, CORRECT)]
    assert cells[3].split("\n")[:4] == ["8 ×", WRONG[A], "5 ×", WRONG[B]]
    heads = page.get_by_role("columnheader").all_inner_texts()
    assert heads[1:] == ["○ not started", "… trying", "✓ correct", "most frequent misconceptions"]
    assert page.get_by_role("table").count() == 1 and page.locator("#evil").count() == 0
    smallest = page.evaluate(
        "Math.min(...[...document.querySelectorAll('main *')].filter(e => e.textContent.trim() && e.offsetWidth)"
        ".map(e => parseFloat(getComputedStyle(e).fontSize)))"
    )
    assert smallest >= 22, "readable from the last row"
    here = urlsplit(instructor.page).netloc
    assert {urlsplit(each).netloc for each in asked} == {here} and page.title() == "The class, live"
    page.screenshot(path=PICTURES / "board-1280.png")

    # A new answer shows up by itself.
    (token,) = enrolled(hub, instructor, "olga").values()
    assert Api(hub.address, token).report(GOOD | {"state": CORRECT}) == 204
    first.get_by_role("cell", name=str(states[CORRECT] + 1), exact=True).wait_for()
    assert Api(hub.address, token).ask("DELETE", "/services/board/report")[0] == 204
    page.emulate_media(color_scheme="dark")
    page.screenshot(path=PICTURES / "board-dark.png")
    page.emulate_media(color_scheme="light")
    page.set_viewport_size({"width": 390, "height": 844})
    wide = page.evaluate("document.documentElement.scrollWidth")
    page.screenshot(path=PICTURES / "board-phone.png", full_page=True)
    assert wide <= 390, "nothing to scroll sideways on a phone"
    assert not problems
    page.context.close()


def test_a_student_may_not_look(lesson: Wire, hub: Hub, instructor: SimpleNamespace, chromium):
    """Logged in with the class's password, the page is forbidden, and so are the counts."""
    page = chromium.new_context().new_page()
    page.set_default_timeout(PATIENCE)
    page.goto(instructor.page)
    page.fill("#username_input", "late0")
    page.fill("#password_input", PASSWORD)
    with page.expect_navigation(url=re.compile("oauth2/authorize|services/board")) as said:
        page.click("#login_submit")
    assert said.value.status == 403 and "Pixels to floats" not in page.content()
    assert page.request.get(f"{instructor.page}counts").status == 403
    assert "misconceptions" not in page.request.get(instructor.page).text()
    page.context.close()


def test_the_group_of_instructors_may_look(hub: Hub, instructor: SimpleNamespace):
    """A tutor whom the instructor has added to the group; nobody else can make a token that may."""
    look = {"scopes": ["access:services!service=board"]}
    instructor.api.ask("POST", "/hub/api/users", {"usernames": ["tutor", "tom"]})
    assert instructor.api.ask("POST", "/hub/api/groups/instructors/users", {"users": ["tutor"]})[0] == 200
    for name, status in (("tutor", 200), ("tom", 403)):
        _, made = instructor.api.ask("POST", f"/hub/api/users/{name}/tokens", look)
        assert Api(hub.address, made.get("token", "")).ask("GET", "/services/board/counts")[0] == status


def run_in_kernel(server: str, token: str, cells: list[str]) -> list[str]:
    """What each cell prints, in a new kernel of a student's server."""

    async def talk() -> list[str]:
        headers = {"Authorization": f"token {token}"}
        made = await AsyncHTTPClient().fetch(f"{server}api/kernels", method="POST", body="{}", headers=headers)
        at = f"{server.replace('http', 'ws', 1)}api/kernels/{json.loads(made.body)['id']}/channels"
        line = await websocket_connect(HTTPRequest(at, headers=headers, request_timeout=PATIENCE / 1000))
        printed = []
        for number, code in enumerate(cells):
            header = {
                "msg_id": str(number),
                "msg_type": "execute_request",
                "session": "s",
                "username": "",
                "version": "5.3",
            }
            content = {
                "code": code,
                "silent": False,
                "store_history": True,
                "user_expressions": {},
                "allow_stdin": False,
            }
            message = {"header": header, "parent_header": {}, "metadata": {}, "content": content, "channel": "shell"}
            await line.write_message(json.dumps(message))
            said = ""
            while True:
                heard = json.loads(await line.read_message())
                if heard["parent_header"].get("msg_id") != str(number):
                    continue
                content = heard["content"]
                said += content.get("text", "") if heard["msg_type"] == "stream" else ""
                said += "\n".join(content["traceback"]) if heard["msg_type"] == "error" else ""
                if heard["msg_type"] == "status" and content["execution_state"] == "idle":
                    break
            printed.append(said)
        line.close()
        return printed

    with ThreadPoolExecutor() as thread:  # in this one, Playwright's loop is running
        return thread.submit(asyncio.run, asyncio.wait_for(talk(), PATIENCE / 1000)).result()


# What a notebook's own cells do, and what it can reach of the board with the token of its server.
KERNEL = [
    "import sys; sys.path.insert(0, {src!r})\nimport torchcourse\ntorchcourse.setup('00_getting_started')",
    """
from labcheck import board
import json, os, urllib.error, urllib.request
def status(path, method="GET", body=None):
    request = urllib.request.Request(os.environ["TORCHCOURSE_BOARD"].replace("report", path), body, method=method)
    request.add_header("Authorization", "token " + os.environ["JUPYTERHUB_API_TOKEN"])
    try:
        return urllib.request.urlopen(request).status
    except urllib.error.HTTPError as error:
        return error.code
print(board.flush(60), [status("counts"), status(""), status("report", "POST", b"garbage")])
""",
    """
from labcheck import check
import torch
check("slope", lambda f, x: torch.tensor(0.0))
print(board.flush(60))
""",
    "board.leave()",
]


def test_a_real_kernel(hub: Hub, instructor: SimpleNamespace):
    """Behind the walls of the sandbox: the set-up cell says that there is a board, and the way there is open."""
    if why := sandbox.trouble(hub.state):
        pytest.skip(why)
    api = instructor.api
    api.ask("POST", "/hub/api/users", {"usernames": ["eve", "instructor"]})
    assert api.ask("POST", "/hub/api/users/eve/server")[0] in (201, 202)
    wait_until(lambda: api.ask("GET", "/hub/api/users/eve")[1]["servers"][""]["ready"], "eve's server starts")
    source = str(ROOT / "src")
    before = counts(instructor)
    token = api.headers["Authorization"].removeprefix("token ")
    cells = [KERNEL[0].format(src=source) + "\nimport labcheck", *KERNEL[1:3]]
    setup, reached, checked = run_in_kernel(f"{hub.address}/user/eve/", token, cells)
    assert "PyTorch" in setup and setup.count("Your class has a live board") == 1, setup
    assert reached.split("\n")[0] == "True [403, 302, 400]" or reached.startswith("True [403, 403, 400]"), reached
    assert "True" in checked, checked
    assert "00_getting_started" not in str(before)
    (chapter,) = [each for each in counts(instructor)["chapters"] if each["chapter"] == "00_getting_started"]
    states = {each["exercise"]: each["states"] for each in chapter["exercises"]}
    assert chapter["students"] == 1 and states.pop("slope")[TRYING] == 1
    assert all(each[NOT_STARTED] == 1 for each in states.values())
    assert "eve" not in str(chapter)
    (left,) = run_in_kernel(
        f"{hub.address}/user/eve/", token, [cells[0] + "\nfrom labcheck import board; board.leave()"]
    )
    assert "You are off the board" in left, left
    assert counts(instructor) == before
