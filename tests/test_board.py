"""The board of a class without a hub: what students' kernels keep and send, and how a class is counted."""

import json
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from support.hub import GOOD, LAB, RIGHT, WRONG, key

from labcheck import board, check, reports
from labcheck.__main__ import main as progress_command
from labcheck.reports import CORRECT, NOT_STARTED, TRYING, Report

A, *_ = WRONG


@pytest.fixture
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file of a student who has not done anything yet."""
    monkeypatch.setenv("TORCHCOURSE_PROGRESS", str(tmp_path / "state" / "progress.jsonl"))
    monkeypatch.delenv("NBGRADER_EXECUTION", raising=False)
    return tmp_path / "state" / "progress.jsonl"


def test_a_check_is_kept(mine: Path, capsys):
    """Exercise, state, misconception; and nothing of the answer, the time or the student."""
    for answer in ("lambda x: None", A, "lambda x: print(x.no_such_name)", RIGHT, A):
        check("scale_pixels", eval(answer))
    check("no_such_exercise", 1)
    first, *lines = [json.loads(line) for line in mine.read_text().splitlines()]
    assert first.keys() == {"student"} and re.fullmatch("[0-9a-f]{16}", first["student"])
    known = key("scale_pixels", "not 256")
    expected = [(NOT_STARTED, None), (TRYING, known), (TRYING, None), (CORRECT, None)]
    assert lines == [{"exercise": "scale_pixels", "state": state, "misconception": met} for state, met in expected]
    assert mine.stat().st_mode & 0o077 == 0

    capsys.readouterr()
    assert progress_command(["progress"]) == 0
    out = capsys.readouterr().out
    assert "01_tensors: 1 of 6 correct" in out and "correct       Pixels to floats" in out
    assert progress_command(["progress", "--json"]) == 0
    sent = json.loads(capsys.readouterr().out)
    assert sent.keys() == {"format", "torchcourse", "student", "reports"}
    assert {"exercise": "scale_pixels", "state": TRYING, "misconception": known} in sent["reports"]


def test_a_certificate_says_what_was_recorded(mine: Path, tmp_path: Path, capsys):
    """It loads nothing from anywhere."""
    file = tmp_path / "mine.html"
    command = ["progress", "--certificate", str(file), "--name", "Ada <b> & {rows}"]
    assert progress_command(command) == 1 and "nothing to certify" in capsys.readouterr().err
    for report in (Report("scale_pixels", CORRECT), Report("normalize", TRYING), Report("small_net", TRYING)):
        reports.keep(report)
    assert progress_command(command) == 0
    page = file.read_text()
    assert "<strong>Ada &lt;b&gt; &amp; {rows}</strong>" in page and "not a grade" in page
    assert re.findall(r"<tr><td>(\w+)<td>(.*?)<td>", page) == [("01_tensors", "1 of 6"), ("total", "1 of 6")]
    assert not re.search(r"src=|href=|url\(|@import|<script", page)
    with pytest.raises(SystemExit):
        progress_command(["progress", "--certificate", str(file)])


def test_nothing_is_kept_where_nobody_learns(mine: Path, monkeypatch: pytest.MonkeyPatch):
    """In grading, or where it is switched off; and a disk that refuses fails no check."""
    for name, value in (("NBGRADER_EXECUTION", "autograde"), ("TORCHCOURSE_PROGRESS", "off")):
        with monkeypatch.context() as patch:
            patch.setenv(name, value)
            check("scale_pixels", eval(RIGHT))
    assert not mine.parent.exists()
    mine.parent.touch()  # a file where the folder should be
    check("scale_pixels", eval(RIGHT))


WRITER = """
import sys
from labcheck.reports import Report, keep
for i in range(200):
    keep(Report(f"{sys.argv[1]}{i}", "correct"))
"""


def test_kernels_write_at_once(mine: Path):
    """Lines of several notebooks don't mix, and what is no line of ours is skipped."""
    running = [subprocess.Popen([sys.executable, "-c", WRITER, name]) for name in ("one", "two")]
    assert [each.wait() for each in running] == [0, 0]
    lines = [json.loads(line) for line in mine.read_text().splitlines() if line]
    written = {line["exercise"] for line in lines if "exercise" in line}
    assert written == {f"{name}{i}" for name in ("one", "two") for i in range(200)}

    known = key("scale_pixels", "pure white")
    with mine.open("ab") as file:
        file.write(b'\n{"exercise": "scale_pixels", "sta')  # the disk was full
    reports.keep(Report("scale_pixels", TRYING, known))
    with mine.open("ab") as file:
        file.write(b"\n\xff\xfe\x00" + b"[" * 100_000 + b'\n[1]\n{"student": 7}\n{"student": "0123456789abcdef"}\n')
        file.write(b'{"exercise": ["scale_pixels"], "state": "correct", "misconception": null}\n' + b"x" * 1_000_000)
    reports.keep(Report("view_or_copy", CORRECT))
    student, found = reports.mine()
    assert found.states == {"scale_pixels": TRYING, "view_or_copy": CORRECT} and found.met == {"scale_pixels": {known}}
    assert student == lines[0]["student"]


def test_only_reports_of_the_course_are_known():
    """Whatever is none is refused, down to the last key; so is a misconception of another exercise."""
    one, other = key("scale_pixels", "pure white"), key("normalize", "variance")
    assert reports.known(GOOD | {"misconception": one}) == Report("scale_pixels", TRYING, one)
    assert reports.known({"exercise": LAB, "state": NOT_STARTED, "misconception": None}).exercise == LAB
    # Of the states, a chapter can only be open.
    changes = [{"name": "ada"}, {"exercise": "no_such_exercise"}, {"exercise": ["scale_pixels"]}, {"exercise": LAB}]
    changes += [{"state": "green"}, {"state": ["trying"]}, {"misconception": {}}, {"misconception": other}]
    changes += [{"misconception": "<img src=x onerror=alert(1)>"}, {"misconception": one, "state": CORRECT}]
    for given in [None, [GOOD], {}, *(GOOD | each for each in changes)]:
        with pytest.raises(ValueError):
            reports.known(given)
            pytest.fail(f"{given} is taken for a report")


def test_a_class_is_pooled(tmp_path: Path, capsys):
    """Each student once, with the furthest state, and the misconceptions that most have met."""
    sentences = list(WRONG.values())
    a, b, c, d = (Report("scale_pixels", TRYING, key("scale_pixels", sentence)) for sentence in sentences)
    right = Report("scale_pixels", CORRECT)
    sent = {"one": [a, b, a, right, a], "two": [b, d], "three": [b, a, c], "four": [Report(LAB, NOT_STARTED)]}
    for i, (name, given) in enumerate(sent.items()):
        standing = reports.Standing()
        for report in given:
            standing.add(report)
        (tmp_path / f"{name}.json").write_text(reports.as_json(f"{i:016x}", standing))
    files = [str(tmp_path / f"{name}.json") for name in sent]
    assert progress_command(["progress", "--pool", *files, files[0]]) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert lines[0] == ["4", "students"] and ["01_tensors,", "4", "students"] in lines
    at = lines.index(["Pixels", "to", "floats", "1", "2", "1"])
    assert lines[at + 1 : at + 3] == [["3", "×", *sentences[1].split()], ["2", "×", *sentences[0].split()]]
    assert lines[at + 3][0] == "1" and "×" not in lines[at + 4]
    assert not re.search("four|" + re.escape(str(tmp_path)), str(lines))

    bad = {"html": "<html>", "deep": "[" * 50_000, "big": " " * 2_000_000, "form": '{"format": 2}'}
    old = {"format": 1, "student": "f" * 16, "reports": [vars(right), GOOD | {"exercise": "gone"}, 7]}
    bad["old"] = json.dumps(old)
    for name, content in bad.items():
        (tmp_path / f"{name}.json").write_text(content)
    files += [str(tmp_path / f"{name}.json") for name in (*bad, "none")]
    assert progress_command(["progress", "--pool", *files]) == 1
    said = capsys.readouterr()
    assert said.out.startswith("5 students") and said.err.count("\n") == 6
    assert "2 of its reports" in said.err and "another form" in said.err and "cannot be read" in said.err


class Wire:
    """A board that takes down every request in full."""

    def __init__(self) -> None:
        self.requests: list[tuple[str, dict[str, str], bytes]] = []
        self.status = 204
        wire = self

        class Handler(BaseHTTPRequestHandler):
            def take(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                wire.requests.append((f"{self.command} {self.path}", dict(self.headers), body))
                self.send_response(wire.status)
                self.end_headers()

            do_POST = do_DELETE = take

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        # It looks for an end twice a second by default, which each test would wait for.
        threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True).start()
        self.address = f"http://127.0.0.1:{self.server.server_port}/report"

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()

    @property
    def bodies(self) -> list[object]:
        return [json.loads(body) for _, _, body in self.requests if body]


@pytest.fixture
def wire(mine: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Wire]:
    """The board of the hub where a student works."""
    made = Wire()
    monkeypatch.setenv("TORCHCOURSE_BOARD", made.address)
    monkeypatch.setenv("JUPYTERHUB_API_TOKEN", "the-random-token")
    monkeypatch.setenv("JUPYTERHUB_USER", "adalovelace")
    for name in ("_said", "_left"):
        monkeypatch.setattr(board, name, False)
    yield made
    made.close()


def test_what_is_sent(wire: Wire, capsys):
    """Three keys under a token; first the student reads that there is a board."""
    secret = "a_word_in_my_code"
    check("scale_pixels", lambda x: (secret, x / 256)[1])
    check("scale_pixels", lambda x: x.a_word_in_my_code)
    assert board.flush()
    out = capsys.readouterr().out
    assert out.count("Your class has a live board") == 1 and "board.leave()" in out
    assert wire.bodies == [GOOD | {"misconception": key("scale_pixels", "not 256")}, GOOD]
    usual = {"Accept-Encoding", "Connection", "Content-Length", "Content-Type", "Host"}
    for line, headers, body in wire.requests:
        assert line == "POST /report" and headers.keys() == usual | {"Authorization", "User-Agent"}
        assert headers["User-Agent"] == "torchcourse" and headers["Authorization"] == "token the-random-token"
        assert not re.search("ada|lovelace|a_word_in_my_code|lambda", f"{line} {headers} {body}")


def test_who_stays_off_sends_nothing(wire: Wire, monkeypatch: pytest.MonkeyPatch, capsys):
    """By the variable, not a byte. By the call, what was sent is taken back, in every notebook, until they join."""
    with monkeypatch.context() as patch:
        patch.setenv("TORCHCOURSE_BOARD", "off")
        check("scale_pixels", eval(RIGHT))
        assert board.flush() and wire.requests == []
    board.leave()
    assert [line for line, *_ in wire.requests] == ["DELETE /report"] and not wire.bodies
    check("scale_pixels", eval(A))
    monkeypatch.setattr(board, "_left", False)  # another notebook of the same student
    check("scale_pixels", eval(A))
    assert board.flush() and len(wire.requests) == 1 and "live board" not in capsys.readouterr().out
    board.join()
    check("scale_pixels", eval(A))
    assert board.flush() and len(wire.bodies) == 1


def test_a_board_that_is_away_holds_up_nothing(wire: Wire, monkeypatch: pytest.MonkeyPatch, capsys):
    """A server that never answers: the check returns at once. Busy ones are asked again; what they refuse is not."""
    asked = threading.Event()
    with monkeypatch.context() as patch:
        patch.setattr(board, "_delivered", lambda report, to: asked.wait(60))
        for _ in range(300):
            board.send(Report("scale_pixels", TRYING))
        check("scale_pixels", eval(RIGHT))
        assert not asked.is_set() and not board.flush(0) and "✓ scale_pixels: correct" in capsys.readouterr().out
        asked.set()
        assert board.flush()
    for status, again in ((503, True), (429, True), (400, False), (403, False)):
        wire.status = status
        assert board._delivered(Report("scale_pixels", TRYING), wire.address) is not again
    wire.close()
    assert board._delivered(Report("scale_pixels", TRYING), wire.address) is False
