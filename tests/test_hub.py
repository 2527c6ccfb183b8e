"""`make hub --board`: one real hub, programs that report to its board, and a real browser that does what people do.

The tests come in the order of a lesson. Pictures of each step: build/screenshots/hub-*.png.
"""

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import psutil
import pytest
from conftest import need, wait_until
from support.hub import ENTRY, GOOD, MEMORY, PASSWORD, PICTURES, WRONG, Api, Hub, Student, key, notebook

from labcheck.reports import CORRECT, NOT_STARTED, TRYING
from tools.course import ROOT
from tools.hub import publish, sandbox


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hub]:
    """The hub that all tests of this file use."""
    need("npm", "bubblewrap", "git", "chromium")
    PICTURES.mkdir(parents=True, exist_ok=True)
    state = tmp_path_factory.mktemp("hub")
    # All cells are in the page, even those that are scrolled out of sight; nothing else differs for the browser.
    for name in ("alice", "bob"):
        settings = state / "home" / name / ".jupyter" / "lab" / "user-settings" / "@jupyterlab" / "notebook-extension"
        settings.mkdir(parents=True)
        (settings / "tracker.jupyterlab-settings").write_text('{"windowingMode": "none"}')
    data = tmp_path_factory.mktemp("data")
    data.chmod(0o755)
    running = Hub(state, Path(os.environ.get("TORCHCOURSE_DATA", data)))
    yield running
    running.process.terminate()
    running.process.wait(60)


@pytest.fixture(scope="module")
def instructor(hub: Hub) -> Api:
    """The instructor, with a token."""
    auth = {"auth": {"username": "instructor", "password": hub.instructors_password}}
    _, said = Api(hub.address).ask("POST", "/hub/api/users/instructor/tokens", auth)
    api = Api(hub.address, said["token"])
    wait_until(lambda: api.ask("GET", "/services/board/counts")[0] == 200, "the board has read the course")
    return api


@pytest.fixture(scope="module")
def alice(chromium, hub: Hub) -> Student:
    return Student(chromium, hub, "alice")


@pytest.fixture(scope="module")
def bob(chromium, hub: Hub) -> Student:
    """A second student, while the first is at work."""
    return Student(chromium, hub, "bob")


def enrolled(instructor: Api, *names: str, scope: str = "custom:board:report") -> list[Api]:
    """Students of these names, each with a token that may do what that of their server may."""
    instructor.ask("POST", "/hub/api/users", {"usernames": names})
    made = [instructor.ask("POST", f"/hub/api/users/{name}/tokens", {"scopes": [scope]})[1] for name in names]
    return [Api(instructor.address.geturl(), each.get("token", "")) for each in made]


def counts(instructor: Api) -> dict:
    return instructor.ask("GET", "/services/board/counts")[1]


def row(instructor: Api, exercise: str = "scale_pixels") -> dict:
    """The row of an exercise on the board."""
    rows = [each for chapter in counts(instructor)["chapters"] for each in chapter["exercises"]]
    return next(each for each in rows if each["exercise"] == exercise)


SENTENCES = list(WRONG.values())
STATES = {NOT_STARTED: 6, TRYING: 6, CORRECT: 8}  # of the twenty students


def test_twenty_students(instructor: Api):
    """The right counts, and the three most frequent misconceptions."""
    a, b, c, d = (GOOD | {"misconception": key("scale_pixels", sentence)} for sentence in SENTENCES)
    right, late = GOOD | {"state": CORRECT}, GOOD | {"state": NOT_STARTED}
    sent = [*[[a, right]] * 5, *[[right]] * 3, *[[a, b, GOOD, a]] * 3, *[[c, b]] * 2, [d], *[[late]] * 6]
    students = enrolled(instructor, *(f"student{i}" for i in range(20)))
    for student, given in zip(students, sent, strict=True):
        assert [student.report(report) for report in given] == [204] * len(given)
    found = row(instructor)
    assert found["states"] == STATES
    told = [(each["students"], each["sentence"]) for each in found["misconceptions"]]
    assert told == [(8, SENTENCES[0]), (5, SENTENCES[1]), (2, SENTENCES[2])]
    assert row(instructor, "normalize")["states"] == {NOT_STARTED: 20, TRYING: 0, CORRECT: 0}
    assert "student1" not in str(counts(instructor))


def test_hostile_reports_are_refused(hub: Hub, instructor: Api):
    """Garbage, forgeries and floods change nothing; only a student's token reports, and it opens nothing else."""
    before = counts(instructor)
    mallory, nina = enrolled(instructor, "mallory", "nina")
    html = GOOD | {"misconception": "<script>document.title = 'evil'</script>"}
    assert [mallory.report(each) for each in (html, b"", b"\xff\xfe", b"[" * 400)] == [400] * 4
    with contextlib.suppress(OSError):  # the board hangs up on what is too long, and the proxy may say that in its way
        assert mallory.report(b" " * 100_000) in (400, 413, 503)
    for path in ("", "counts", "report", "oauth_callback?code=x&state=x"):
        status, said = mallory.ask("GET", f"/services/board/{path}")
        assert status in (302, 400, 403, 404, 405) and "chapters" not in str(said)
    zoe = enrolled(instructor, "zoe", scope="read:users!user")
    for other in (Api(hub.address), Api(hub.address, "invented"), *zoe):
        assert other.report(GOOD) == 403 and other.ask("DELETE", "/services/board/report")[0] == 403
    assert counts(instructor) == before

    # A flood counts for one student, and ends soon; the others do not notice. Each may take back what they have sent.
    started = time.monotonic()
    flood = [mallory.report(GOOD | {"state": CORRECT}) for _ in range(100)]
    assert flood.count(204) <= 60 + time.monotonic() - started and set(flood) == {204, 429}
    assert nina.report(GOOD) == 204
    assert row(instructor)["states"] == STATES | {TRYING: 7, CORRECT: 9}
    assert nina.ask("DELETE", "/services/board/report")[0] == 204
    assert row(instructor)["states"] == STATES | {CORRECT: 9}


def test_the_page(hub: Hub, instructor: Api, chromium):
    """The instructor sees it after the login, it refreshes by itself and needs nothing from elsewhere."""
    visitor = Student(chromium, hub, "instructor")
    page, address = visitor.page, re.search(r"^The class, live.*: (\S+/services/board/)$", hub.text, re.M)[1]
    asked, problems = [], []
    page.on("request", lambda request: asked.append(urlsplit(request.url).netloc))
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on("console", lambda said: problems.append(said.text) if said.type in ("error", "warning") else None)
    page.goto(address)
    visitor.sign_in(hub.instructors_password)
    first = page.get_by_role("row", name=re.compile("Pixels to floats"))
    first.wait_for()
    cells = [cell.inner_text() for cell in first.get_by_role("cell").all()]
    assert page.url == address and cells[:3] == ["6", "6", "9"]
    assert cells[3].split("\n")[:4] == ["8 ×", SENTENCES[0], "5 ×", SENTENCES[1]]
    visitor.look("board")
    (olga,) = enrolled(instructor, "olga")
    assert olga.report(GOOD | {"state": CORRECT}) == 204
    first.get_by_role("cell", name="10", exact=True).wait_for()
    page.set_viewport_size({"width": 390, "height": 844})
    assert page.evaluate("document.documentElement.scrollWidth") <= 390, "nothing to scroll sideways on a phone"
    assert set(asked) == {urlsplit(address).netloc} and not problems


def test_only_instructors_may_look(hub: Hub, instructor: Api, chromium):
    """Logged in with the class's password, page and counts are forbidden. A tutor is in the group, and may look."""
    visitor, address = Student(chromium, hub, "student1"), f"{hub.address}/services/board/"
    visitor.page.goto(address)
    with visitor.page.expect_navigation(url=re.compile("oauth2/authorize|services/board")) as said:
        visitor.sign_in(PASSWORD)
    assert said.value.status == 403 and "Pixels to floats" not in visitor.page.content()
    assert visitor.page.request.get(f"{address}counts").status == 403
    assert "misconceptions" not in visitor.page.request.get(address).text()

    instructor.ask("POST", "/hub/api/users", {"usernames": ["tutor"]})
    assert instructor.ask("POST", "/hub/api/groups/instructors/users", {"users": ["tutor"]})[0] == 200
    tutor, tom = enrolled(instructor, "tutor", "tom", scope="access:services!service=board")
    assert [each.ask("GET", "/services/board/counts")[0] for each in (tutor, tom)] == [200, 403]


def test_the_link_opens_the_lab(alice: Student, hub: Hub):
    """Only the class's password opens, and not for the instructor. Then lab 01 is there, in the student's own copy."""
    assert f"  {hub.address}{publish.pull_path(hub.state)}\n" in hub.text
    alice.page.goto(f"{hub.address}{publish.pull_path(hub.state, ENTRY)}")
    for name, password in (("alice", "something else"), ("instructor", PASSWORD)):
        alice.sign_in(password, name)
        alice.page.wait_for_load_state()
        alice.page.get_by_text("Invalid username or password").wait_for()
    alice.sign_in(PASSWORD)
    alice.wait_for_lab()
    alice.page.get_by_role("heading", name="Lab 01 · Tensors").wait_for()
    folders = {path.name for path in hub.home("alice").iterdir()}
    assert {"labs", "notebooks", "src"} <= folders and not folders & {"solutions", "tests", "slides", "tools"}


def test_run_all_says_not_attempted(alice: Student):
    """A lab as it comes: nothing fails, each exercise says that it waits, and students read that there is a board."""
    checks = [c.id for c in notebook(ROOT / ENTRY).cells if c.id.startswith("check-")]
    alice.page.locator(".lm-MenuBar-item", has_text="Run").first.click()
    alice.page.locator(".lm-Menu-item[data-command='runmenu:run-all']").click()
    for check in checks:
        alice.output(check, "not attempted")
    progress = alice.output("how-far-you-got-2", "not attempted")
    assert progress.inner_text().count("not attempted") == len(checks) == 6
    outputs = alice.page.locator(".jp-OutputArea-output")
    assert outputs.filter(has_text="Traceback").count() == 0
    assert outputs.filter(has_text="Your class has a live board").count() == 1
    assert alice.page.locator(".jp-toast-button, .Toastify__toast").count() == 0
    alice.look("not-attempted")


def test_an_answer_is_judged_at_once(alice: Student, hub: Hub, instructor: Api):
    """A wrong answer gets its own message, the right one the green bar; both reach the disk, and the board."""
    before = row(instructor)["states"]
    for white, said in ((256, "the largest pixel value is 255, not 256"), (255, "✓ correct")):
        alice.answer("answer-scale_pixels", f"def scale_pixels(pixels):\n    return pixels / {white}")
        alice.page.keyboard.press("Shift+Enter")
        alice.output("check-scale_pixels", said)
        alice.look(f"answer-{white}")
    alice.page.keyboard.press("Control+S")
    wait_until(lambda: "pixels / 255" in (hub.home("alice") / ENTRY).read_text(), "the lab is saved")
    expected = before | {NOT_STARTED: before[NOT_STARTED] - 1, CORRECT: before[CORRECT] + 1}
    wait_until(lambda: row(instructor)["states"] == expected, "the board counts", seconds=60)
    assert "alice" not in str(counts(instructor))


def test_an_attacker_gets_nowhere(bob: Student, hub: Hub):
    """A second student reaches no file, port, socket, process, secret or memory of the machine or of the first."""
    bob.page.goto(hub.address)  # without the link: the bare address leads to the course, too
    bob.sign_in(PASSWORD)
    bob.page.locator(f".jp-RenderedMarkdown a[href*='{ENTRY}']").click()  # the course map
    bob.wait_for_lab()
    mark, course = f"torchcourse-test-{os.getpid()}", hub.home("bob")
    home = str(course.parent)
    listening = {each.laddr.port for each in psutil.net_connections("tcp") if each.status == psutil.CONN_LISTEN}
    addresses = {each.address for card in psutil.net_if_addrs().values() for each in card}
    servers = {each.environ()["JUPYTERHUB_SERVICE_URL"] for each in hub.processes("alice")}
    others = {urlsplit(address).port for address in (hub.address, *servers)}
    tokens = {each.environ()["JUPYTERHUB_API_TOKEN"] for each in hub.processes("alice")}
    tokens |= {each.environ().get("CONFIGPROXY_AUTH_TOKEN", "") for each in hub.processes()} - {""}
    assert len(others) == len(tokens) == 2 and others < listening
    given = {
        "homes": str(hub.state / "home"),
        "state": str(hub.state),
        "root": str(ROOT),
        "read-only": [str(path) for path in (hub.data, ROOT, sandbox.PACKAGES[0], "/usr", "/etc")],
        "ports": sorted(listening),
        "addresses": [each for each in addresses if re.fullmatch(r"\d+(\.\d+){3}", each) and each != "127.0.0.1"],
        "abstract": mark,
        "pids": psutil.pids(),
        "secrets": [*tokens, PASSWORD, hub.instructors_password],
        "login": {"username": "dora", "password": PASSWORD},
        "too much": MEMORY * 2**30 + 2**28,
    }
    attack = Path(__file__).with_name("support").joinpath("attack.py").read_text()
    for name, content in (("given.json", json.dumps(given)), ("attack.py", attack)):
        (course / name).write_text(content)
        (course / name).chmod(0o644)
    shared = Path("/dev/shm", mark)
    with socket.socket(socket.AF_UNIX) as outside:
        outside.bind("\0" + mark)
        outside.listen()
        shared.touch()
        try:
            code = f"import subprocess, sys\ndone = subprocess.run([sys.executable, {str(course / 'attack.py')!r}], "
            code += "capture_output=True, text=True)\nprint(done.stdout + done.stderr, 'end of the attack')"
            bob.answer("answer-scale_pixels", code)
            said = bob.output("answer-scale_pixels", "end of the attack").inner_text()
        finally:
            shared.unlink()
    bob.look("attacker")
    assert said.startswith("{"), said
    found = json.loads(said.split("\n")[0])

    assert found["homes"] == ["bob"] and set(found["state"]) == {"home", publish.repository(hub.state).name}
    assert set(found["project"]) <= {".venv", "src", "hub"} and found["data"] == sorted(os.listdir(hub.data))
    assert not found["shadow"] and found["processes"] < 10 and found["environment"] == []
    # Below /tmp, a folder that leads to something shown is the student's own: what they write there is nowhere else.
    assert not [folder for folder in found["written"] if not folder.startswith("/tmp/")]
    assert not [folder for folder in given["read-only"] if (Path(folder) / "x").exists()]
    assert found["user"] != 0 and found["capabilities"] == 0 and found["no new privileges"] == 1
    assert not {kind for kind, name in found["namespaces"].items() if name == os.readlink(f"/proc/self/ns/{kind}")}
    assert all(re.fullmatch("null|zero|full|u?random|tty|console|nvidia.*", name) for name in found["devices"])
    nodes = {f"/dev/{name}" for name in found["devices"]}
    assert set(found["writable mounts"]) <= {"/dev/pts", "/dev/shm", "/tmp", home} | nodes
    assert found["writable in proc"] == []
    # Its own ports may have numbers that are in use outside, too: the ways to the hub and the board have.
    assert set(found["ports"]) <= set(found["listening"]) and not others & set(found["listening"])
    assert found["addresses"] == [] and not found["abstract"] and found["shared memory"] == []
    assert found["roots"] == found["secrets"] == found["signals"] == []
    log = str(hub.state / "log" / "bob.log")
    assert [name for name in found["files"] if name.startswith(str(hub.state)) and not name.startswith(home)] == [log]
    assert not found["user namespace"] and not found["mount"]
    assert found["myself"] == 200 and set(found["others"]) <= {403, 404} and found["login"] == 403
    assert found["board"] == [403, 400]
    assert found["memory"] == [False] * 5
    # The hub itself keeps one student out of another's server.
    answer = bob.page.request.get(f"{hub.address}/user/alice/api/contents/", max_redirects=0)
    assert answer.status in (302, 403)


def test_users_of_their_own(hub: Hub):
    """Started by root, each student is a separate user, who can read none of the hub's files."""
    if os.geteuid() != 0:
        pytest.skip("only root can give students users of their own")
    users = {}
    for name in ("alice", "bob"):
        home, processes = hub.state / "home" / name, hub.processes(name)
        users[name] = {each.uids().real for each in processes if each.name() != "bwrap"}
        assert processes and users[name] == {home.stat().st_uid} and home.stat().st_mode & 0o077 == 0
    assert users["alice"] != users["bob"] and all(each.pop() in sandbox.USERS for each in users.values())
    # Also where there is no sandbox.
    user = (hub.state / "home" / "bob").stat().st_uid
    words = ["setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups", "find", str(hub.state), "-readable"]
    assert subprocess.run(words, capture_output=True, text=True).stdout == ""


def test_a_signal_stops_everything(hub: Hub):
    """After the signal there is no hub, proxy, server or kernel left, and the work is still there."""
    assert {"node", "bwrap"} <= {process.name() for process in hub.processes()}
    hub.process.send_signal(signal.SIGTERM)
    assert hub.process.wait(60) == 0
    wait_until(lambda: not hub.processes(), "an end of all processes")
    assert "has stopped" in hub.text and "pixels / 255" in (hub.home("alice") / ENTRY).read_text()
