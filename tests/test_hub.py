"""`make hub`: a real hub, and a real browser that does what a student does. And the files in hub/ for other hubs.

One hub serves all tests of this file. Pictures of each step: build/screenshots/hub-*.png.
"""

import importlib.util
import inspect
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from urllib.parse import parse_qs, urlsplit

import nbformat
import psutil
import pytest
import yaml
from conftest import skip_or_fail
from traitlets.config import Config

from tools.course import ROOT, chapters
from tools.hub import __main__ as command
from tools.hub import publish, sandbox
from tools.hub.settings import Settings

PICTURES = ROOT / "build" / "screenshots"
PASSWORD = "a word for the class"
PATIENCE = 150_000  # milliseconds for whatever a browser waits for; generous, as the machine may be busy
LAB = "01_tensors"
ENTRY = f"labs/{LAB}.ipynb"


# ------------------------------------------------------------------------------------------- what the course is made of


def answers() -> object:
    """tests/answers/01_tensors.py as a module."""
    spec = importlib.util.spec_from_file_location("answers_of_the_hub", ROOT / "tests" / "answers" / f"{LAB}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def typed(function, name: str) -> str:
    """An answer as a student types it."""
    return inspect.getsource(function).strip().replace(f"def {function.__name__}(", f"def {name}(", 1)


def notebook(path: Path) -> nbformat.NotebookNode:
    """A notebook, which must be whole: raises if git or anybody has broken it."""
    found = nbformat.read(path, nbformat.NO_CONVERT)
    nbformat.validate(found)
    return found


def position(cell_id: str) -> int:
    """Where a cell stands in the lab."""
    return [cell.id for cell in notebook(ROOT / "labs" / f"{LAB}.ipynb").cells].index(cell_id)


def changed(folder: Path, mark: str) -> Path:
    """A copy of what a release is made of, in which a lecture, two labs and the README have changed."""
    for name in ("LICENSE", "LICENSE-TEXT", "README.md", "course.toml", "environment.yml", "pyproject.toml"):
        shutil.copy2(ROOT / name, folder / name)
    for name in ("src", "notebooks", "labs"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    for path in (folder / "notebooks" / f"{LAB}.ipynb", folder / "labs" / "02_training_loop.ipynb", folder / ENTRY):
        book = notebook(path)
        book.cells[0].source += f"\n\n{mark}"
        if path == folder / ENTRY:  # the very cell that the student has filled in, and a new one below it
            at = position("answer-scale_pixels")
            book.cells[at].source = book.cells[at].source.replace("Images as floats", mark)
            book.cells.insert(at + 1, nbformat.v4.new_markdown_cell(mark))
        nbformat.write(book, path)
    with (folder / "README.md").open("a") as readme:
        readme.write(f"\n{mark}\n")
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
    return Path(os.environ.get("TORCHCOURSE_DATA") or tmp_path_factory.mktemp("data"))


class Hub:
    """A running `python -m tools.hub`."""

    def __init__(self, state: Path, data: Path):
        self.state, self.said = state, state / "said"
        words = ["--port", "0", "--state", str(state), "--password", PASSWORD, "--data", str(data)]
        with self.said.open("w") as said:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "tools.hub", *words], cwd=ROOT, stdout=said, stderr=subprocess.STDOUT
            )
        end = time.monotonic() + PATIENCE / 1000
        while "Ctrl-C" not in self.text and self.process.poll() is None and time.monotonic() < end:
            time.sleep(0.1)
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
    for package in ("jupyterhub", "nbgitpuller", "playwright"):
        need_package(package)
    for program in ("npm", "bwrap", "prlimit", "git"):
        if shutil.which(program) is None:
            skip_or_fail(f"the hub needs {program}")
    # All cells stand in the page, also those that are scrolled out of sight; nothing else differs for the browser.
    for name in ("alice", "bob"):
        settings = state / "home" / name / ".jupyter" / "lab" / "user-settings" / "@jupyterlab" / "notebook-extension"
        settings.mkdir(parents=True)
        (settings / "tracker.jupyterlab-settings").write_text('{"windowingMode": "none"}')
    running = Hub(state, data)
    yield running
    running.process.terminate()
    running.process.wait(60)


@pytest.fixture(scope="module")
def chromium() -> Iterator:
    """A headless Chromium."""
    from tools import slides_browser

    if slides_browser.executable() is None:
        skip_or_fail("a student needs a browser: Chromium")
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


def wait_until(true, what: str) -> None:
    end = time.monotonic() + PATIENCE / 1000
    while not true():
        assert time.monotonic() < end, f"in vain: {what}"
        time.sleep(0.1)


@pytest.fixture(scope="module")
def alice(chromium, hub: Hub) -> Student:
    return Student(chromium, hub, "alice")


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
    """Log in, and lab 01 stands there, in an own copy without solutions, and without a word of news."""
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
    progress = alice.output("how-far-you-came-2", "not attempted")
    assert progress.inner_text().count("not attempted") == len(checks) == 7
    page = alice.page
    assert page.locator("[data-mime-type='application/vnd.jupyter.error']").count() == 0
    assert page.locator(".jp-OutputArea-output", has_text="Traceback").count() == 0
    assert page.locator(".jp-toast-button, .Toastify__toast").count() == 0
    alice.cell("check-scale_pixels").scroll_into_view_if_needed()
    alice.look("3-not-attempted")


def test_an_answer_is_judged_at_once(alice: Student, hub: Hub):
    """A wrong answer gets its own message, the right one the green bar, and both end up on the disk."""
    table = answers()
    wrong, words = table.WRONG["scale_pixels"][0]
    alice.answer("answer-scale_pixels", typed(wrong, "scale_pixels"))
    alice.run_next()
    assert "incorrect" in alice.output("check-scale_pixels", words).inner_text()
    alice.look("4-wrong")

    alice.answer("answer-scale_pixels", typed(table.RIGHT["scale_pixels"][0], "scale_pixels"))
    alice.run_next()
    alice.output("check-scale_pixels", "✓ correct")
    alice.look("5-right")

    last = alice.cell("how-far-you-came-2")
    last.locator(".cm-content").click()
    alice.run_next()
    alice.output("how-far-you-came-2", "correct").scroll_into_view_if_needed()
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
    assert "SECOND EDITION" in notebook(home / "labs" / "02_training_loop.ipynb").cells[0].source
    assert "SECOND EDITION" in (home / "README.md").read_text()
    assert (home / "labs" / "my_notes.txt").read_text() == "mine"
    alice.cell("answer-scale_pixels").get_by_text("pixels / 255").wait_for()
    alice.output("check-scale_pixels", "✓ correct").scroll_into_view_if_needed()
    alice.look("7-after-the-update")


# What another student's kernel finds. Each line is a question with the answer True or False.
PROBE = """\
import json, os, pathlib
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
    "writes": [may_write(p) for p in ({data!r}, {root!r}, {package!r}, os.environ["TORCHCOURSE_DATA"], "/usr", "/etc")],
    "home": may_write(os.path.expanduser("~")),
    "secrets": [n for n in os.environ if n == "TORCHCOURSE_HUB" or "PASSWORD" in n],
    "processes": len([n for n in os.listdir("/proc") if n.isdigit()]),
    "data": sorted(os.listdir(os.environ["TORCHCOURSE_DATA"])),
}}))
"""


def test_students_are_separate(chromium, hub: Hub, data: Path):
    """A second student finds their own files and what is shared, read-only; nothing of others, and no solutions."""
    if not sandbox.works(hub.state):
        skip_or_fail("students are kept apart by bubblewrap, which does not work here")
    bob = Student(chromium, hub, "bob")
    bob.page.goto(hub.address)  # without the link: the bare address leads to the course, too
    bob.sign_in(PASSWORD)
    bob.page.locator(".jp-DirListing-item", has_text=Path(ENTRY).name).dblclick()
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
    assert not any(found["writes"]) and found["home"]
    assert found["data"] == sorted(os.listdir(data))
    assert "SECOND EDITION" in (hub.home("bob") / ENTRY).read_text()
    # The hub itself keeps one student out of another's server.
    answer = bob.page.request.get(f"{hub.address}/user/alice/api/contents/", max_redirects=0)
    assert answer.status in (302, 403)


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
    assert publish.publish(state) > 10
    assert publish.publish(state) == 0
    pull(state, home)

    lab, lecture = home / ENTRY, home / "notebooks" / f"{LAB}.ipynb"
    book, at = notebook(lab), position("answer-scale_pixels")
    book.cells[at].source = book.cells[at].source.replace("# YOUR CODE HERE", "return pixels / 255")
    book.cells.insert(at + 1, nbformat.v4.new_code_cell("my_own_try = 1"))
    book.cells[0].source = "# My lab"
    nbformat.write(book, lab)
    work = lab.read_bytes()
    (home / "notebooks" / "03_cpu_to_gpu.ipynb").write_text("not even a notebook any more")

    publish.publish(state, changed(tmp_path / "new", "SECOND EDITION"))
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
    with pytest.raises(SystemExit) as raised:
        command.main(list(words))
    assert isinstance(raised.value.code, str), "an error is a sentence"
    return raised.value.code


def test_what_is_wrong_is_said_in_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    state = ["--state", str(tmp_path)]
    assert "at least 8 characters" in refusal(*state, "--password", "short")
    assert "without accents" in refusal(*state, "--password", "straßenbahn")
    monkeypatch.setattr(command, "proxy", lambda: Path("proxy"))
    monkeypatch.setenv("TORCHCOURSE_DATA", str(tmp_path))
    with socket.create_server(("127.0.0.1", 0)) as taken:
        said = refusal(*state, "--port", str(taken.getsockname()[1]))
        assert "cannot listen" in said and "--port" in said
    with command.alone(tmp_path):
        assert "runs already" in refusal(*state)
    monkeypatch.setattr(command.importlib.util, "find_spec", lambda name: None)
    assert "Not installed: jupyterhub and nbgitpuller" in refusal(*state) and ".[hub]" in refusal(*state)


def test_the_proxy_without_npm_or_network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """No npm, and an npm that reaches nobody: a sentence each, and nothing half done is left."""
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
    assert "students can read each other's files and the solutions" in words[False]
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
    """Settings arrive, and each student's server gets its own home, limits and walls."""
    for name, value in settings(tmp_path, sandboxed=sandboxed).environment().items():
        monkeypatch.setenv(name, value)
    c = executed(ROOT / "hub" / "jupyterhub_config.py")
    assert c.JupyterHub.bind_url == "http://127.0.0.1:8000"
    assert c.JupyterHub.authenticator_class == "shared-password"
    assert c.SharedPasswordAuthenticator.user_password == PASSWORD
    allowed = re.compile(c.Authenticator.username_pattern).match  # as JupyterHub asks
    assert allowed("alice-2") and not any(map(allowed, ("../alice", "alice/../bob", "alice bob", "")))
    spawner = SimpleNamespace(home_dir=str(tmp_path / "home" / "alice"), cmd=None)
    c.Spawner.pre_spawn_hook(spawner)
    assert Path(spawner.home_dir).is_dir()
    assert ("bwrap" in spawner.cmd) == sandboxed
    assert f"--data={3 * 2**30}" in spawner.cmd and "jupyterhub.singleuser" in spawner.cmd
    if sandboxed:
        writable = [spawner.cmd[i + 1] for i, word in enumerate(spawner.cmd) if word == "--bind"]
        assert writable == [spawner.home_dir]
        shown = [Path(spawner.cmd[i + 1]) for i, word in enumerate(spawner.cmd) if word.startswith("--ro-bind")]
        hidden = [ROOT / "solutions", ROOT / "tests" / "answers", tmp_path / "jupyterhub.sqlite"]
        assert not [(h, s) for h in hidden for s in shown if h.is_relative_to(s)]


def test_settings_of_students_jupyter():
    """No pop-up with news, and an end for kernels that nobody uses."""
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
    assert f"push --mirror {link['repo'][0]}" in readme


def test_paths_in_the_readme_exist():
    """Files of this folder that the README names are there."""
    text = (ROOT / "hub" / "README.md").read_text()
    named = re.findall(r"(?<![\w/.])hub/[\w./-]*\w", text)
    assert len(named) >= 4
    assert not [name for name in named if not (ROOT / name).exists()]
