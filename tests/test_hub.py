"""`make hub`: a real hub, and a real browser that does what a student does. And the files in hub/ for other hubs.

One hub serves all tests of this file. Pictures of each step: build/screenshots/hub-*.png.
"""

import contextlib
import http.client
import importlib.util
import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from urllib.parse import parse_qs, urlencode, urlsplit

import nbformat
import psutil
import pytest
import yaml
from conftest import copy_of_course, need, skip_or_fail, wait_until
from traitlets.config import Config

from tools import build
from tools.course import ROOT, chapters, select
from tools.hub import __main__ as command
from tools.hub import board, login, publish, sandbox, spawner
from tools.hub.settings import Settings

PICTURES = ROOT / "build" / "screenshots"
PASSWORD = "a word for the class"
MEMORY = 2  # GiB for each student
PATIENCE = 150_000  # milliseconds for whatever a browser waits for; generous, as the machine may be busy
LAB = "01_tensors"
ENTRY = f"labs/{LAB}.ipynb"


# ------------------------------------------------------------------------------------------- what the course is made of


def notebook(path: Path) -> nbformat.NotebookNode:
    """A notebook, which must be valid: raises if anything, git included, has broken it."""
    found = nbformat.read(path, nbformat.NO_CONVERT)
    nbformat.validate(found)
    return found


def position(cell_id: str) -> int:
    """Where a cell is in the lab."""
    return [cell.id for cell in notebook(ROOT / "labs" / f"{LAB}.ipynb").cells].index(cell_id)


def changed(folder: Path, mark: str) -> Path:
    """A copy of what a release is made of, in which the title of a chapter and two of its labs have changed."""
    copy_of_course(folder)
    manifest = folder / "course.toml"
    manifest.write_text(manifest.read_text().replace('title = "Tensors"', f'title = "Tensors, {mark}"'))
    lecture, (chapter,) = folder / "notebooks" / f"{LAB}.ipynb", select([LAB], folder)
    built, fresh = notebook(lecture), build.edition(chapter, "lecture", folder)
    fresh.metadata = built.metadata
    nbformat.write(build.with_outputs_of(built, fresh), lecture)
    # The very cell that the student has filled in, and a new one below it; another lab.
    lab = folder / "solutions" / f"{LAB}.md"
    text = lab.read_text().replace('"""Images as floats', f'"""{mark}')
    lab.write_text(
        text.replace('```{code-cell}\ncheck("scale_pixels"', f'{mark}\n\n```{{code-cell}}\ncheck("scale_pixels"')
    )
    other = folder / "solutions" / "02_training_loop.md"
    other.write_text(f"{other.read_text()}\n{mark}\n")
    return folder


# ------------------------------------------------------------------------------------------------------- the hub itself


def need_package(name: str) -> None:
    if importlib.util.find_spec(name) is None:
        skip_or_fail(f"the hub and its tests need {name}: pip install -e '.[dev]'")


@pytest.fixture(scope="module")
def state(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the hub."""
    return tmp_path_factory.mktemp("hub")


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The data root of the class: the real one where there is one."""
    folder = Path(os.environ.get("TORCHCOURSE_DATA") or tmp_path_factory.mktemp("data"))
    if folder.stat().st_mode & 0o055 != 0o055:
        folder.chmod(0o755)
    return folder


class Hub:
    """A running `python -m tools.hub`."""

    def __init__(self, state: Path, data: Path, *options: str):
        for package in ("jupyterhub", "nbgitpuller", "playwright"):
            need_package(package)
        need("npm", "bubblewrap", "git")
        self.state, self.said = state, state / "said"
        words = ["--port", "0", "--state", str(state), "--password", PASSWORD, "--data", str(data)]
        words += ["--memory", str(MEMORY), *options]
        with self.said.open("w") as said:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "tools.hub", *words], cwd=ROOT, stdout=said, stderr=subprocess.STDOUT
            )
        wait_until(lambda: "Ctrl-C" in self.text or self.process.poll() is not None, "the hub")
        found = re.search(r"^The hub is up: (\S+)$", self.text, re.M)
        log = state / "hub.log"
        assert found, f"the hub did not start:\n{self.text}\n{log.read_text()[-3000:] if log.exists() else ''}"
        self.address = found[1]

    @property
    def text(self) -> str:
        """Everything printed so far."""
        return self.said.read_text()

    def link(self, path: str) -> str:
        """The printed link to a lab, for another path of the course."""
        found = re.search(r"^  (http\S+)labs%2F\d\w+\.ipynb$", self.text, re.M)
        return found[1] + path.replace("/", "%2F")

    def home(self, name: str) -> Path:
        return self.state / "home" / name / publish.course_name()

    def processes(self) -> list[psutil.Process]:
        """The hub, its proxy, servers, kernels: all that know the folder of the hub."""
        found = []
        for process in psutil.process_iter():
            try:
                known = [*process.cmdline(), *process.environ().values()]
            except psutil.Error:
                continue
            if process.pid != os.getpid() and any(str(self.state) in word for word in known):
                found.append(process)
        return found


@pytest.fixture(scope="module")
def hub(state: Path, data: Path) -> Iterator[Hub]:
    """The hub that the students of this file use."""
    # All cells are in the page, even those that are scrolled out of sight; nothing else differs for the browser.
    for name in ("alice", "bob"):
        settings = state / "home" / name / ".jupyter" / "lab" / "user-settings" / "@jupyterlab" / "notebook-extension"
        settings.mkdir(parents=True)
        (settings / "tracker.jupyterlab-settings").write_text('{"windowingMode": "none"}')
    running = Hub(state, data, "--board")  # the attacker finds all the doors that there may be
    yield running
    running.process.terminate()
    running.process.wait(60)


@pytest.fixture(scope="module")
def chromium() -> Iterator:
    """A headless Chromium."""
    from tools import slides_browser

    need("chromium")
    PICTURES.mkdir(parents=True, exist_ok=True)
    for old in PICTURES.glob("hub-*.png"):
        old.unlink()
    with slides_browser.browser() as running:
        yield running


class Student:
    """A person in front of a browser."""

    def __init__(self, chromium, hub: Hub, name: str):
        self.hub, self.name = hub, name
        self.page = chromium.new_context(viewport={"width": 1280, "height": 860}).new_page()
        self.page.set_default_timeout(PATIENCE)

    def look(self, what: str) -> None:
        self.page.screenshot(path=os.fspath(PICTURES / f"hub-{what}.png"))

    def sign_in(self, password: str, name: str | None = None) -> None:
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

    def run_next(self) -> None:
        self.page.keyboard.press("Shift+Enter")

    def menu(self, title: str, command: str) -> None:
        self.page.locator(".lm-MenuBar-item", has_text=title).first.click()
        self.page.locator(f".lm-Menu-item[data-command='{command}']").click()


@pytest.fixture(scope="module")
def alice(chromium, hub: Hub) -> Student:
    return Student(chromium, hub, "alice")


@pytest.fixture(scope="module")
def bob(chromium, hub: Hub) -> Student:
    """A second student, while the first is at work."""
    if why := sandbox.trouble(hub.state):
        skip_or_fail(f"students are kept apart by a sandbox: {why}")
    return Student(chromium, hub, "bob")


# --------------------------------------------------------------------------------------------------- a student's lesson


def test_only_the_password_opens(alice: Student, hub: Hub):
    """A wrong password is refused, and the class's password does not open the admin page."""
    alice.page.goto(hub.link(ENTRY))
    alice.sign_in("something else")
    refused = alice.page.get_by_text("Invalid username or password")
    refused.wait_for()
    alice.look("1-refused")
    alice.sign_in(PASSWORD, name="instructor")
    alice.page.wait_for_load_state()
    refused.wait_for()
    alice.sign_in(PASSWORD, name="alice ..")
    refused.wait_for()


def test_the_link_opens_the_lab(alice: Student, hub: Hub):
    """Log in, and lab 01 is there, in the student's own copy, without solutions and without news."""
    alice.page.goto(hub.link(ENTRY))
    alice.look("2-login")
    alice.sign_in(PASSWORD)
    alice.wait_for_lab()
    alice.page.get_by_role("heading", name="Lab 01 · Tensors").wait_for()
    folders = {path.name for path in hub.home("alice").iterdir()}
    assert {"labs", "notebooks", "src"} <= folders and not folders & {"solutions", "tests", "slides", "tools"}
    assert {path.stem for path in (hub.home("alice") / "labs").glob("*.ipynb")} == {c.name for c in chapters()}


def test_run_all_says_not_attempted(alice: Student):
    """A lab as it comes: nothing fails, each exercise says that it waits."""
    checks = [c.id for c in notebook(ROOT / "labs" / f"{LAB}.ipynb").cells if c.id.startswith("check-")]
    alice.menu("Run", "runmenu:run-all")
    for check in checks:
        alice.output(check, "not attempted")
    progress = alice.output("how-far-you-got-2", "not attempted")
    assert progress.inner_text().count("not attempted") == len(checks) == 6
    page = alice.page
    assert page.locator("[data-mime-type='application/vnd.jupyter.error']").count() == 0
    assert page.locator(".jp-OutputArea-output", has_text="Traceback").count() == 0
    assert page.locator(".jp-toast-button, .Toastify__toast").count() == 0
    alice.cell("check-scale_pixels").scroll_into_view_if_needed()
    alice.look("3-not-attempted")


def test_an_answer_is_judged_at_once(alice: Student, hub: Hub):
    """A wrong answer gets its own message, the right one the green bar, and both end up on the disk."""
    typed = "def scale_pixels(pixels):\n    return pixels / {white}"
    alice.answer("answer-scale_pixels", typed.format(white=256))
    alice.run_next()
    said = alice.output("check-scale_pixels", "the largest pixel value is 255, not 256").inner_text()
    assert "incorrect" in said
    alice.look("4-wrong")

    alice.answer("answer-scale_pixels", typed.format(white=255))
    alice.run_next()
    alice.output("check-scale_pixels", "✓ correct")
    alice.look("5-right")

    last = alice.cell("how-far-you-got-2")
    last.locator(".cm-content").click()
    alice.run_next()
    alice.output("how-far-you-got-2", "correct").scroll_into_view_if_needed()
    alice.look("6-progress")

    alice.page.keyboard.press("Control+S")
    wait_until(lambda: "pixels / 255" in (hub.home("alice") / ENTRY).read_text(), "the lab is saved")


def test_an_update_loses_nothing(alice: Student, hub: Hub, tmp_path: Path):
    """The instructor changes the course, also the lab that the student has open; the link brings it, over no work."""
    lab, home = hub.home("alice") / ENTRY, hub.home("alice")
    (home / "labs" / "my_notes.txt").write_text("mine")
    before = lab.read_bytes()
    publish.publish(hub.state, changed(tmp_path, "SECOND EDITION"))
    alice.page.goto(hub.link(ENTRY))
    alice.wait_for_lab()
    assert lab.read_bytes() == before
    assert "pixels / 255" in notebook(lab).cells[position("answer-scale_pixels")].source
    assert "SECOND EDITION" in notebook(home / "notebooks" / f"{LAB}.ipynb").cells[0].source
    assert "SECOND EDITION" in notebook(home / "labs" / "02_training_loop.ipynb").cells[-2].source
    assert "SECOND EDITION" in (home / "README.md").read_text()
    assert (home / "labs" / "my_notes.txt").read_text() == "mine"
    alice.cell("answer-scale_pixels").get_by_text("pixels / 255").wait_for()
    alice.output("check-scale_pixels", "✓ correct").scroll_into_view_if_needed()
    alice.look("7-after-the-update")


# What another student's kernel finds. Each line is a question with the answer True or False.
PROBE = """\
import json, os, pathlib, socket
def may_write(folder):
    try:
        pathlib.Path(folder, "x").write_text("x")
    except OSError:
        return False
    return True
print(json.dumps({{
    "homes": os.listdir({homes!r}),
    "state": os.listdir({state!r}),
    "solutions": os.path.exists({root!r} + "/solutions"),
    "project": os.listdir({root!r}),
    "etc": os.path.exists("/etc/shadow"),
    "writes": {{p: may_write(p) for p in ({data!r}, {root!r}, {package!r}, "/usr", "/etc")}},
    "home": may_write(os.path.expanduser("~")),
    "secrets": [n for n in os.environ if n == "TORCHCOURSE_HUB" or "PASSWORD" in n],
    "processes": len([n for n in os.listdir("/proc") if n.isdigit()]),
    "data": sorted(os.listdir(os.environ["TORCHCOURSE_DATA"])),
    "names": [socket.getnameinfo((each, 80), 0)[0] for each in ("127.0.0.1", "::1", "::ffff:127.0.0.1")],
}}))
"""


def test_students_are_separate(bob: Student, hub: Hub, data: Path):
    """A second student finds their own files and what is shared, read-only; nothing of others, and no solutions."""
    bob.page.goto(hub.address)  # without the link: the bare address leads to the course, too
    bob.sign_in(PASSWORD)
    # The page where students land shows the course map; its links open lectures and labs.
    bob.page.locator(f".jp-RenderedMarkdown a[href*='{ENTRY}']").click()
    bob.wait_for_lab()
    places = {"homes": hub.state / "home", "state": hub.state, "root": ROOT, "data": data}
    places["package"] = sandbox.package("torchcourse")
    bob.answer("answer-scale_pixels", PROBE.format(**{name: str(path) for name, path in places.items()}))
    found = json.loads(bob.output("answer-scale_pixels", "homes").inner_text())
    bob.look("8-another-student")
    repository = publish.repository(hub.state).name
    assert found["homes"] == ["bob"] and set(found["state"]) == {"home", repository}
    assert not found["solutions"] and set(found["project"]) <= {".venv", "src", "hub"}
    assert not found["etc"] and not found["secrets"] and found["processes"] < 10
    # Below /tmp, a folder that leads to something shown is the student's own: what they write there is nowhere else.
    written = [folder for folder, done in found["writes"].items() if done and not folder.startswith("/tmp/")]
    assert found["home"] and not written
    assert not [folder for folder in found["writes"] if (Path(folder) / "x").exists()]
    assert found["data"] == sorted(os.listdir(data))
    assert all(name.startswith("localhost") for name in found["names"])  # Gloo warns about an address without a name
    assert "SECOND EDITION" in (hub.home("bob") / ENTRY).read_text()
    # The hub itself keeps one student out of another's server.
    answer = bob.page.request.get(f"{hub.address}/user/alice/api/contents/", max_redirects=0)
    assert answer.status in (302, 403)


# What an attacker tries from a notebook. All that succeeds, or is there to be seen, is in the answer.
ATTACK = """\
import ctypes, json, mmap, os, pathlib, socket, stat, subprocess, sys, urllib.error, urllib.request
given = json.loads(pathlib.Path(__file__).with_name("given.json").read_text())

def succeeds(attempt, *arguments):
    try:
        attempt(*arguments)
    except OSError:
        return False
    return True

def reached(family, address):
    with socket.socket(family) as one:
        one.settimeout(5)
        return succeeds(one.connect, address)

def status(path, data=None, **headers):
    request = urllib.request.Request(hub + path, data and json.dumps(data).encode(), headers)
    try:
        return urllib.request.urlopen(request).status
    except urllib.error.HTTPError as error:
        return error.code

def text(path):
    try:
        return pathlib.Path(path).read_text(errors="replace")
    except OSError:
        return ""

def mine(folder):
    found = []
    for each in (name for name in os.listdir("/proc") if name.isdigit()):
        if succeeds(os.listdir, f"/proc/{each}/{folder}"):
            found += [f"/proc/{each}/{folder}/{name}" for name in os.listdir(f"/proc/{each}/{folder}")]
    return found

def holds(code):
    code = f"import mmap, os; {code}; print('held')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    return "held" in done.stdout

hub = os.environ["JUPYTERHUB_API_URL"].removesuffix("/hub/api")
token = {"Authorization": "token " + os.environ["JUPYTERHUB_API_TOKEN"]}
home, libc = os.path.expanduser("~"), ctypes.CDLL(None)
mounts = [line.split() for line in text("/proc/self/mountinfo").splitlines()]
in_proc = [os.path.join(top, name) for top, folders, files in os.walk("/proc") for name in (*folders, *files)
           if not os.path.join(top, name).split("/")[2].replace("self", "1").replace("thread-", "").isdigit()]
me = dict(line.split(":", 1) for line in text("/proc/self/status").splitlines())
fill = "chunk = bytes(1 << 26); [m.write(chunk) for i in range(given // (1 << 26))]"
fill = fill.replace("given", str(given["too much"]))
print(json.dumps({
    "user": os.getuid(), "capabilities": int(me["CapEff"], 16), "no new privileges": int(me["NoNewPrivs"]),
    "namespaces": {name: os.readlink("/proc/self/ns/" + name) for name in ("net", "pid", "ipc", "uts", "mnt")},
    "writable mounts": [each[4] for each in mounts if "rw" in each[5].split(",")],
    "writable in proc": [each for each in in_proc if os.access(each, os.W_OK) and not os.path.islink(each)],
    "core pattern": succeeds(pathlib.Path("/proc/sys/kernel/core_pattern").write_text, given["core pattern"]),
    "devices": [name for name in os.listdir("/dev") if stat.S_IFMT(os.lstat("/dev/" + name).st_mode)
                in (stat.S_IFCHR, stat.S_IFBLK)],
    "listening": [int(line.split()[1].split(":")[1], 16) for line in text("/proc/net/tcp").splitlines()[1:]
                  if line.split()[3] == "0A"],
    "ports": [port for port in given["ports"] if reached(socket.AF_INET, ("127.0.0.1", port))],
    "addresses": [each for each in given["addresses"] if reached(socket.AF_INET, (each, given["ports"][0]))],
    "abstract": reached(socket.AF_UNIX, "\\0" + given["abstract"]),
    "unix sockets": [line.split()[7] for line in text("/proc/net/unix").splitlines()[1:] if len(line.split()) > 7],
    "roots": [each for each in mine("root") if each.endswith(("/shadow", "/.ssh", "/boot"))],
    "secrets": [each for each in mine("") if each.endswith(("/environ", "/cmdline")) if any(
                secret in text(each) for secret in given["secrets"])],
    "files": sorted({os.readlink(each) for each in mine("fd") if os.path.lexists(each)}),
    "signals": [pid for pid in given["pids"] if pid > 1000 and succeeds(os.kill, pid, 0)],
    "user namespace": libc.unshare(0x10000000) == 0,
    "mount": libc.mount(b"none", home.encode(), b"tmpfs", 0, None) == 0,
    "shared memory": [each for each in os.listdir("/dev/shm") if each == given["abstract"]],
    "keyring": libc.syscall(250 if os.uname().machine == "x86_64" else 219, 0, -4, 1) != -1,
    "cgroups": os.path.exists("/sys/fs/cgroup"),
    "myself": status("/hub/api/user", **token),
    "others": [status("/hub/api/users/alice", **token), status("/hub/api/users", **token),
               status("/hub/api/shutdown", {"servers": False}, **token), status("/hub/api/proxy", **token)],
    "login": status(f"/hub/api/users/{given['login']['username']}/tokens", {"auth": given["login"]}),
    "memory": [holds(code) for code in (
        f"a = b'x' * {given['too much']}",
        f"f = os.memfd_create('x'); os.ftruncate(f, {given['too much']}); m = mmap.mmap(f, 0); {fill}",
        f"m = mmap.mmap(-1, {given['too much']}); {fill}",
        f"m = open('/dev/shm/x', 'wb'); {fill}",
        f"m = open('/tmp/x', 'wb'); {fill}",
        f"f = open('/dev/zero', 'r+b'); m = mmap.mmap(f.fileno(), {given['too much']}); {fill}",
    )],
}))
"""
DEVICES = {"null", "zero", "full", "random", "urandom", "tty", "console", "nvidia", "nvidiactl", "nvidia-modeset"}
DEVICES |= {"nvidia-uvm", "nvidia-uvm-tools"}


def served(hub: Hub, name: str) -> list[psutil.Process]:
    """The processes of a student, as the machine sees them."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if process.environ().get("JUPYTERHUB_USER") == name and process.environ()["HOME"].startswith(
                str(hub.state)
            ):
                found.append(process)
    return found


def secrets_of(hub: Hub) -> list[str]:
    """What no student may know but their own: passwords, the tokens of the proxy and of another student."""
    tokens = {each.environ()["JUPYTERHUB_API_TOKEN"] for each in served(hub, "alice")}
    tokens |= {each.environ().get("CONFIGPROXY_AUTH_TOKEN", "") for each in hub.processes()} - {""}
    assert len(tokens) == 2
    return [*tokens, PASSWORD, re.search(r"instructor, password (\S+)", hub.text)[1]]


def test_an_attacker_gets_nowhere(bob: Student, hub: Hub):
    """From a notebook no port, socket, process, file, secret or memory of the machine or of another student."""
    mark, course = f"torchcourse-test-{os.getpid()}", hub.home("bob")
    home = str(course.parent)
    listening = {each.laddr.port for each in psutil.net_connections("tcp") if each.status == psutil.CONN_LISTEN}
    addresses = {each.address for card in psutil.net_if_addrs().values() for each in card}
    others = {
        urlsplit(hub.address).port,
        *(urlsplit(e.environ()["JUPYTERHUB_SERVICE_URL"]).port for e in served(hub, "alice")),
    }
    given = {
        "ports": sorted(listening),
        "addresses": [each for each in addresses if re.fullmatch(r"\d+(\.\d+){3}", each) and each != "127.0.0.1"],
        "abstract": mark,
        "pids": psutil.pids(),
        "secrets": secrets_of(hub),
        "core pattern": Path("/proc/sys/kernel/core_pattern").read_text(),
        "login": {"username": "dora", "password": PASSWORD},
        "too much": MEMORY * 2**30 + 2**28,
    }
    assert others < listening
    shared = Path("/dev/shm", mark)
    with socket.socket(socket.AF_UNIX) as outside:
        outside.bind("\0" + mark)
        outside.listen()
        shared.touch()
        try:
            for name, content in (("given.json", json.dumps(given)), ("attack.py", ATTACK)):
                (course / name).write_text(content)
                (course / name).chmod(0o644)
            code = f"import subprocess, sys\ndone = subprocess.run([sys.executable, {str(course / 'attack.py')!r}], "
            code += "capture_output=True, text=True)\nprint(done.stdout + done.stderr, 'end of the attack')"
            bob.answer("answer-scale_pixels", code)
            said = bob.output("answer-scale_pixels", "end of the attack").inner_text()
        finally:
            shared.unlink()
    bob.look("9-an-attacker")
    assert said.startswith("{"), said
    found = json.loads(said.split("\n")[0])

    assert found["user"] != 0 and found["capabilities"] == 0 and found["no new privileges"] == 1
    assert not {kind for kind, name in found["namespaces"].items() if name == os.readlink(f"/proc/self/ns/{kind}")}
    assert set(found["devices"]) <= DEVICES | {f"nvidia{i}" for i in range(16)}
    nodes = {f"/dev/{name}" for name in found["devices"]}
    assert set(found["writable mounts"]) <= {"/dev/pts", "/dev/shm", "/tmp", home} | nodes
    assert found["writable in proc"] == [] and not found["core pattern"]
    # Its own ports may have numbers that are in use outside, too: the way to the hub has.
    assert set(found["ports"]) <= set(found["listening"]) and not others & set(found["listening"])
    assert found["addresses"] == [] and not found["abstract"] and found["shared memory"] == []
    assert not [name for name in found["unix sockets"] if not name.startswith((home, "/tmp/", "/proc/self/fd/"))]
    assert found["roots"] == found["secrets"] == found["signals"] == []
    log = str(hub.state / "log" / "bob.log")
    assert [name for name in found["files"] if name.startswith(str(hub.state)) and not name.startswith(home)] == [log]
    assert not any(found[what] for what in ("user namespace", "mount", "keyring", "cgroups"))
    assert found["myself"] == 200 and set(found["others"]) <= {403, 404} and found["login"] == 403
    assert found["memory"] == [False] * 6


def test_users_of_their_own(hub: Hub):
    """Started by root, each student is a separate user, who can read none of the hub's files."""
    if os.geteuid() != 0:
        pytest.skip("only root can give students users of their own")
    users = {}
    for name in ("alice", "bob"):
        home, processes = hub.state / "home" / name, served(hub, name)
        users[name] = {each.uids().real for each in processes if each.name() != "bwrap"}
        assert processes and users[name] == {home.stat().st_uid} and home.stat().st_mode & 0o077 == 0
    assert users["alice"] != users["bob"] and all(each.pop() in sandbox.USERS for each in users.values())
    # Also where there is no sandbox.
    user = (hub.state / "home" / "bob").stat().st_uid
    words = ["setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups", "find", str(hub.state), "-readable"]
    assert subprocess.run(words, capture_output=True, text=True).stdout == ""


class Visitor:
    """A program at some address that hands in passwords, in both ways that there are."""

    def __init__(self, hub: Hub, address: str):
        self.hub, self.address = urlsplit(hub.address), address

    def ask(self, method: str, path: str, body: str = "", **headers: str) -> tuple[int, str, str]:
        line = http.client.HTTPConnection(self.hub.hostname, self.hub.port, source_address=(self.address, 0))
        with contextlib.closing(line):
            line.request(method, path, body, headers)
            answer = line.getresponse()
            cookies = [value.split(";")[0] for key, value in answer.getheaders() if key.lower() == "set-cookie"]
            return answer.status, "; ".join(cookies), answer.read().decode()

    def log_in(self, name: str, password: str) -> int:
        _, cookie, page = self.ask("GET", "/hub/login")
        form = {"username": name, "password": password, "_xsrf": re.search(r'name="_xsrf" value="([^"]*)', page)[1]}
        headers = {"Cookie": cookie, "Content-Type": "application/x-www-form-urlencoded"}
        status, _, page = self.ask("POST", "/hub/login", urlencode(form), **headers)
        said = {302: "", 403: "Invalid username or password"}
        assert said[status] in page
        return status

    def get_token(self, name: str, password: str) -> int:
        body = json.dumps({"auth": {"username": name, "password": password}})
        return self.ask("POST", f"/hub/api/users/{name}/tokens", body, **{"Content-Type": "application/json"})[0]


def test_wrong_passwords_keep_no_one_out(hub: Hub):
    """Wrong passwords, for any names, keep nobody behind the same address from logging in, in either way."""
    classroom = Visitor(hub, "127.0.0.21")
    for i in range(40):
        assert (
            classroom.log_in(f"name{i}", "something else") == classroom.get_token("student1", "something else") == 403
        )
    assert [classroom.log_in(f"student{i}", PASSWORD) for i in range(5)] == [302] * 5
    assert classroom.get_token("student1", PASSWORD) in (200, 201)


def test_a_signal_stops_everything(hub: Hub):
    """After the signal there is no hub, proxy, server or kernel left, and the work is still there."""
    running = {process.name() for process in hub.processes()}
    assert {"node", "bwrap"} <= running
    hub.process.send_signal(signal.SIGTERM)
    assert hub.process.wait(60) == 0
    wait_until(lambda: not hub.processes(), f"an end of {hub.processes()}")
    assert "has stopped" in hub.text
    assert "pixels / 255" in (hub.home("alice") / ENTRY).read_text()


# ----------------------------------------------------------------------------------- what needs neither hub nor browser


def pull(state: Path, home: Path) -> None:
    """What nbgitpuller does when the link is followed."""
    need_package("nbgitpuller")
    words = ["-m", "nbgitpuller.pull", publish.repository(state).as_uri(), publish.BRANCH, str(home)]
    subprocess.run([sys.executable, *words], check=True, capture_output=True)


def test_a_notebook_with_work_in_it_stays_as_it_is(tmp_path: Path):
    """Whatever both sides did to a notebook, the student's file stays byte for byte; who wants the new one gets it."""
    state, home = tmp_path / "state", tmp_path / "home"
    (tmp_path / "new").mkdir()
    state.mkdir()
    assert len(publish.publish(state)) > 10
    assert publish.publish(state) == []
    pull(state, home)

    lab, lecture = home / ENTRY, home / "notebooks" / f"{LAB}.ipynb"
    book, at = notebook(lab), position("answer-scale_pixels")
    book.cells[at].source = book.cells[at].source.replace("# YOUR CODE HERE", "return pixels / 255")
    book.cells.insert(at + 1, nbformat.v4.new_code_cell("my_own_try = 1"))
    book.cells[0].source = "# My lab"
    nbformat.write(book, lab)
    work = lab.read_bytes()
    (home / "notebooks" / "03_cpu_to_gpu.ipynb").write_text("not even a notebook any more")

    news = command.published(publish.publish(state, changed(tmp_path / "new", "SECOND EDITION")))
    assert "in lab 00 or 01 or 02 keeps" in news  # in lab 00, the title of what comes next
    pull(state, home)
    assert lab.read_bytes() == work
    assert (home / "notebooks" / "03_cpu_to_gpu.ipynb").read_text() == "not even a notebook any more"
    assert "SECOND EDITION" in notebook(lecture).cells[0].source
    assert "SECOND EDITION" in (home / "README.md").read_text()

    lab.rename(lab.with_name("mine.ipynb"))
    pull(state, home)
    assert lab.with_name("mine.ipynb").read_bytes() == work
    assert "SECOND EDITION" in notebook(lab).cells[at].source


def test_what_is_handed_out_holds_no_answers(tmp_path: Path):
    """The repository has exactly the files of a release, and no history that shows more."""
    publish.publish(tmp_path)
    bare = publish.repository(tmp_path)
    files = publish.git(f"--git-dir={bare}", "ls-tree", "-r", "--name-only", publish.BRANCH).split()
    assert {Path(name).parts[0] for name in files if "/" in name} == {"labs", "notebooks", "src"}
    assert publish.git(f"--git-dir={bare}", "rev-list", "--all").count("\n") == 1
    assert "### BEGIN SOLUTION" not in publish.git(f"--git-dir={bare}", "grep", "-h", "", publish.BRANCH, "--", "labs")


def refusal(*words: str) -> str:
    """The sentence with which the command ends."""
    mask = os.umask(0o022)  # which the command changes, for files of every later test, too
    try:
        with pytest.raises(SystemExit) as raised:
            command.main(list(words))
    finally:
        os.umask(mask)
    assert isinstance(raised.value.code, str), "an error is a sentence"
    return raised.value.code


def test_what_is_wrong_is_said_in_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    state = ["--state", str(tmp_path)]
    assert "at least 16 characters" in refusal(*state, "--password", "torchcourse")
    assert "without accents" in refusal(*state, "--password", "straßenbahn und so")
    monkeypatch.setattr(command, "proxy", lambda: Path("proxy"))
    monkeypatch.setattr(command.sandbox, "trouble", lambda state: "")  # root goes no further without one
    monkeypatch.setenv("TORCHCOURSE_DATA", str(tmp_path))
    with socket.create_server(("127.0.0.1", 0)) as taken:
        said = refusal(*state, "--port", str(taken.getsockname()[1]))
        assert "cannot listen" in said and "--port" in said
    with command.alone(tmp_path):
        assert "runs already" in refusal(*state)
    (tmp_path / "file").touch()
    assert "--state" in refusal("--state", str(tmp_path / "file"))
    monkeypatch.setattr(command.importlib.util, "find_spec", lambda name: None)
    assert "Not installed: jupyterhub and nbgitpuller" in refusal(*state) and ".[hub]" in refusal(*state)


def test_the_proxy_without_npm_or_network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """No npm, and an npm without a network: a sentence each, and nothing half done is left."""
    broken = tmp_path / "bin" / "npm"
    broken.parent.mkdir()
    monkeypatch.setenv("PATH", str(broken.parent))
    with pytest.raises(SystemExit, match="npm is not installed"):
        command.proxy(tmp_path / "build")
    broken.write_text("#!/bin/sh\necho 'npm error code ENOTFOUND' >&2\nexit 1\n")
    broken.chmod(0o755)
    with pytest.raises(SystemExit, match=r"ENOTFOUND.*Check the network"):
        command.proxy(tmp_path / "build")
    assert not list((tmp_path / "build" / "npm").iterdir())


def test_without_a_sandbox_the_hub_says_so(tmp_path: Path):
    """And with one it names what it does not do."""
    words = {sandboxed: command.welcome(settings(tmp_path, sandboxed=sandboxed), "news") for sandboxed in (True, False)}
    assert "students can read and change each other's files" in words[False]
    assert "runs in a sandbox" in words[True]
    assert publish.pull_path(tmp_path) in words[True] and f"Password for students: {PASSWORD}" in words[True]


# ------------------------------------------------------------------------------------------------- files for other hubs


def settings(state: Path, **others) -> Settings:
    """Settings as the command line makes them."""
    values = {"state": state, "data": state / "data", "proxy": state / "proxy", "ip": "127.0.0.1", "port": 8000}
    values |= {"hub_port": 8001, "proxy_port": 8002, "password": PASSWORD, "admin": "instructor"}
    values |= {"admin_password": "x" * 32, "start_path": publish.pull_path(state), "sandboxed": True}
    return Settings(**values | {"memory_gib": 3, "threads": 2} | others)


def executed(path: Path) -> Config:
    """What a configuration file sets."""
    config = Config()
    exec(compile(path.read_text(), path, "exec"), {"get_config": lambda: config, "__file__": str(path)})
    return config


@pytest.mark.parametrize("sandboxed", [True, False])
def test_the_configuration_of_make_hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sandboxed: bool):
    """Settings arrive, and each student's server gets its own home and limits, and walls where there can be any."""
    for name, value in settings(tmp_path, sandboxed=sandboxed).environment().items():
        monkeypatch.setenv(name, value)
    c = executed(ROOT / "hub" / "jupyterhub_config.py")
    assert c.JupyterHub.bind_url == "http://127.0.0.1:8000"
    assert c.JupyterHub.authenticator_class is login.ClassPassword and c.ClassPassword.user_password == PASSWORD
    allowed = re.compile(c.Authenticator.username_pattern).match  # as JupyterHub asks
    assert allowed("alice-2") and not any(map(allowed, ("../alice", "alice/../bob", "alice bob", "")))
    if sandboxed:
        assert c.JupyterHub.spawner_class is spawner.WalledSpawner
    else:
        home = tmp_path / "home" / "alice"
        c.Spawner.pre_spawn_hook(SimpleNamespace(home_dir=str(home)))
        assert home.stat().st_mode & 0o777 == 0o700
        assert f"--data={3 * 2**30}" in c.Spawner.cmd and "jupyterhub.singleuser" in c.Spawner.cmd


# --------------------------------------------------------------------------------------------------- walls and limits


@pytest.mark.parametrize("user", [None, sandbox.USERS[0]])
def test_what_a_sandbox_shows(tmp_path: Path, user: int | None):
    """Only the home can be written, nothing of the hub and no solution is there, and root stays root."""
    home, own = tmp_path / "home" / "alice", tmp_path / "run" / "alice"
    sandbox.furnish(own, user, [])
    memory = sandbox.Memory.of(3, counted=False)
    words = sandbox.arguments(home, sandbox.packages(), tmp_path, own, user, memory, 9)
    assert [words[i + 1] for i, word in enumerate(words) if word == "--bind"] == [str(home)]
    shown = [Path(words[i + 1]) for i, word in enumerate(words) if word.startswith("--ro-bind")]
    hidden = [ROOT / "solutions", ROOT / "tests" / "answers", tmp_path / "jupyterhub.sqlite", Path("/etc/shadow")]
    assert not [(h, s) for h in hidden for s in shown if h.is_relative_to(s)]
    assert ("--unshare-user" in words) == (user is None)  # it would show root under another name


def test_a_course_and_a_hub_among_programs_are_hidden(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Also where they lie in a folder that students see."""
    lib = tmp_path / "env" / "lib"
    state, home, own = lib / "hub", lib / "hub" / "home" / "alice", lib / "hub" / "run" / "alice"
    home.mkdir(parents=True)
    (lib / "course").mkdir()
    sandbox.furnish(own, None, [])
    monkeypatch.setattr(sys, "base_prefix", str(tmp_path / "env"))
    monkeypatch.setattr(sandbox, "ROOT", lib / "course")
    words = sandbox.arguments(home, [], state, own, None, sandbox.Memory.of(3, counted=False), 9)
    order = [words.index(str(path)) for path in (lib, lib / "course")]
    assert order == sorted(order) and words[order[1] - 1] == "--tmpfs"
    assert words.index(str(lib)) < words.index(str(state)) < words.index(str(home))
    assert words[words.index(str(state)) - 1] == "--tmpfs" and words[words.index(str(home)) - 1] == "--bind"


@pytest.mark.parametrize("counted", [True, False])
def test_memory_adds_up(monkeypatch: pytest.MonkeyPatch, counted: bool):
    """What a program may hold stays within the student's share: as a sum, or where that is not counted, in parts."""
    monkeypatch.setattr(sandbox, "gpus", list)
    memory = sandbox.Memory.of(4, counted)
    assert (memory.group == 4 * 2**30) == counted == (not memory.strict)
    assert counted or memory.process + memory.shared + memory.temporary <= 4 * 2**30
    without = sandbox.Memory.of(0, counted)
    assert without.group is without.process is None and not without.strict


def test_a_home_belongs_to_one_user(tmp_path: Path):
    """Also one that was there before; and what a link in it points to stays with its owner."""
    if os.geteuid() != 0:
        assert sandbox.settle(tmp_path / "home" / "alice") is None and (tmp_path / "home" / "alice").is_dir()
        return
    treasure, old = tmp_path / "treasure", tmp_path / "home" / "alice"
    treasure.touch()
    (old / "labs").mkdir(parents=True)
    (old / "labs" / "mine.ipynb").touch()
    (old / "link").symlink_to(treasure)
    (old / "folder").symlink_to(tmp_path)
    users = {name: sandbox.settle(tmp_path / "home" / name) for name in ("alice", "bob", "carol")}
    assert len(set(users.values())) == 3 and all(user in sandbox.USERS for user in users.values())
    assert {path.lstat().st_uid for path in (old, *old.rglob("*"))} == {users["alice"]}
    assert treasure.stat().st_uid == tmp_path.stat().st_uid == 0
    assert sandbox.settle(old) == users["alice"]


def test_root_starts_no_hub_without_a_sandbox(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A plain user may, for a demonstration."""
    monkeypatch.setattr(command, "proxy", lambda: Path("proxy"))
    monkeypatch.setattr(sandbox, "trouble", lambda state: "it rains.")
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    said = refusal("--state", str(tmp_path))
    assert "it rains." in said and "plain user" in said
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    options = command.arguments(["--state", str(tmp_path), "--data", str(tmp_path), "--port", "0"])
    assert not command.choose(options, tmp_path).sandboxed


def test_what_is_wrong_with_a_sandbox(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A program that is missing, and bubblewrap's own words where it fails; nothing is left behind."""
    broken = tmp_path / "bin" / "bwrap"
    broken.parent.mkdir()
    broken.write_text("#!/bin/sh\necho 'bwrap: No permissions to create a new namespace' >&2\nexit 1\n")
    broken.chmod(0o755)
    monkeypatch.setenv("PATH", str(broken.parent), prepend=os.pathsep)
    assert sandbox.trouble(tmp_path).endswith("create a new namespace.") and os.listdir(tmp_path) == ["bin"]
    broken.unlink()
    monkeypatch.setenv("PATH", str(broken.parent))
    assert "bwrap is not installed" in sandbox.trouble(tmp_path)


def test_an_allowance():
    """A burst, then one at a time; each key for itself, and forgotten when it is whole again."""
    now = 1000.0
    allowance = board.Allowance(burst=3, seconds=2, clock=lambda: now)

    def looked_at(key: str, attempts: int) -> int:
        found = 0
        for _ in range(attempts):
            if not allowance.wait(key):
                allowance.spend(key)
                found += 1
        return found

    assert looked_at("a", 10) == 3 and looked_at("b", 2) == 2
    assert allowance.wait("a") == 2 and allowance.wait("b") == 0
    now += 4
    assert looked_at("a", 10) == 2
    now += 3600
    assert looked_at("a", 10) == 3
    for i in range(5000):
        now += 1
        allowance.spend(f"key {i}")
    assert len(allowance.whole) <= 1001


def test_the_right_password_opens_and_no_other():
    """Also after any number of wrong ones, and whatever they are; not from a sandbox."""
    from tornado.web import HTTPError

    passwords = {"user_password": PASSWORD, "admin_password": "x" * 32, "admin_users": {"instructor"}}
    door = login.ClassPassword(username_pattern=r"[a-z][a-z0-9]*\Z", **passwords)

    def status(name: object, password: object, peer: str = "127.0.0.1") -> int:
        stream = SimpleNamespace(socket=SimpleNamespace(getpeername=lambda: (peer, 40000)))
        request = SimpleNamespace(connection=SimpleNamespace(stream=stream))
        try:
            data = {"username": name, "password": password}
            door.authenticate(SimpleNamespace(request=request), data).send(None)  # it never has to wait
        except StopIteration as done:
            return 200 if done.value else 403
        except HTTPError as error:
            return error.status_code

    assert {status(name, f"guess {i}") for i in range(400) for name in ("instructor", f"name{i}")} == {403}
    assert status("alice", PASSWORD) == status("instructor", "x" * 32) == 200
    assert status("instructor", PASSWORD) == status("alice", PASSWORD, peer=login.FROM_INSIDE) == 403
    for odd in ("straße und so", "", None, 7, ["a"]):
        assert status("bob", odd) == status(odd, PASSWORD) == 403


def test_settings_of_students_jupyter():
    """No pop-up with news, Markdown is shown as a page, and unused kernels are stopped."""
    shown = json.loads((ROOT / "hub" / "jupyter" / "labconfig" / "default_setting_overrides.json").read_text())
    assert shown["@jupyterlab/docmanager-extension:plugin"]["defaultViewers"]["markdown"] == "Markdown Preview"
    page = json.loads((ROOT / "hub" / "jupyter" / "labconfig" / "page_config.json").read_text())
    assert page["disabledExtensions"]["@jupyterlab/apputils-extension:announcements"]
    assert executed(ROOT / "hub" / "jupyter" / "jupyter_server_config.py").MappingKernelManager.cull_idle_timeout > 0


def test_the_littlest_jupyterhub():
    """The snippet runs, names what the README's commands make, and its link is that of `make hub`."""
    readme = (ROOT / "hub" / "README.md").read_text()
    c = executed(ROOT / "hub" / "tljh" / "torchcourse.py")
    environment = c.Spawner.environment.to_dict()["update"]
    data, (_, repository) = environment["TORCHCOURSE_DATA"], c.SystemdSpawner.readonly_paths
    assert c.JupyterHub.default_url == publish.pull_path(Path("/srv/hub"))
    assert f"--root {data}" in readme and f"safe.directory {repository}" in readme
    assert repository == str(publish.repository(Path("/srv/hub")))
    assert "cp hub/tljh/torchcourse.py" in readme and "environment.yml" in readme
    for key in ("limits.memory", "limits.cpu", "services.cull.timeout"):
        assert f"tljh-config set {key} " in readme


def test_zero_to_jupyterhub():
    """values.yaml is YAML with what a class needs, and goes with the Dockerfile and the README."""
    folder = ROOT / "hub" / "zero-to-jupyterhub"
    values = yaml.safe_load((folder / "values.yaml").read_text())
    docker, readme = (folder / "Dockerfile").read_text(), (ROOT / "hub" / "README.md").read_text()
    user = values["singleuser"]
    mounts = {mount["name"]: mount for mount in user["storage"]["extraVolumeMounts"].values()}
    volumes = {volume["name"]: volume for volume in user["storage"]["extraVolumes"].values()}
    assert mounts.keys() == volumes.keys()
    assert mounts["shared-memory"]["mountPath"] == "/dev/shm"
    assert volumes["shared-memory"]["emptyDir"]["medium"] == "Memory"
    assert mounts["data"]["readOnly"] and mounts["data"]["mountPath"] == user["extraEnv"]["TORCHCOURSE_DATA"]
    for what in ("memory", "cpu"):
        assert user[what]["guarantee"] and user[what]["limit"]
    assert any("nvidia.com/gpu" in str(profile) for profile in user["profileList"])
    link = parse_qs(urlsplit(values["hub"]["config"]["JupyterHub"]["default_url"]).query)
    assert link["targetPath"] == [publish.course_name()] and link["branch"] == [publish.BRANCH]
    assert "--file environment.yml" in docker and "nbgitpuller" in docker
    assert f"{user['image']['name']}:{user['image']['tag']}" in readme
    assert f"push {link['repo'][0]} {publish.BRANCH}" in readme


def test_paths_in_the_readme_exist():
    """Files of this folder that the README names are there."""
    text = (ROOT / "hub" / "README.md").read_text()
    named = re.findall(r"(?<![\w/.])hub/[\w./-]*\w", text)
    assert len(named) >= 4
    assert not [name for name in named if not (ROOT / name).exists()]
