"""What `make hub` is made of, without a running one: repository, sandbox, password, settings. Files for other hubs."""

import os
import re
import socket
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from urllib.parse import parse_qs, urlsplit

import nbformat
import pytest
import yaml
from conftest import copy_of_course, need
from support.hub import ENTRY, LAB, PASSWORD, notebook, position
from tornado.web import HTTPError
from traitlets.config import Config

from tools import build, npm
from tools.course import ROOT, select
from tools.hub import __main__ as command
from tools.hub import board, passwords, publish, sandbox, settings, spawner

HUB = ROOT / "hub"


def changed(folder: Path, mark: str) -> Path:
    """A copy of what a release is made of, in which the title of a chapter and two of its labs have changed."""
    folder.mkdir()
    copy_of_course(folder)
    manifest = folder / "course.toml"
    manifest.write_text(manifest.read_text().replace('title = "Tensors"', f'title = "Tensors, {mark}"'))
    lecture, (chapter,) = folder / "notebooks" / f"{LAB}.ipynb", select([LAB], folder)
    built, fresh = notebook(lecture), build.edition(chapter, "lecture", folder)
    fresh.metadata = built.metadata
    nbformat.write(build.with_outputs_of(built, fresh), lecture)
    # The very cell that the student has filled in, and a new one below it; another lab.
    lab, cell = folder / "solutions" / f"{LAB}.md", '```{code-cell}\ncheck("scale_pixels"'
    lab.write_text(lab.read_text().replace('"""Images as floats', f'"""{mark}').replace(cell, f"{mark}\n\n{cell}"))
    other = folder / "solutions" / "02_training_loop.md"
    other.write_text(f"{other.read_text()}\n{mark}\n")
    return folder


def pull(state: Path, home: Path) -> None:
    """What nbgitpuller does when the link is followed."""
    words = ["-m", "nbgitpuller.pull", publish.repository(state).as_uri(), publish.BRANCH, str(home)]
    subprocess.run([sys.executable, *words], check=True, capture_output=True)


def test_a_notebook_with_work_in_it_stays_as_it_is(tmp_path: Path):
    """Students get exactly the files of a release. Whatever both sides did to a notebook, the student's file stays byte
    for byte; who wants the new one gets it beside it."""
    state, home = tmp_path / "state", tmp_path / "home"
    state.mkdir()
    assert len(publish.publish(state)) > 10 and publish.publish(state) == []
    bare = f"--git-dir={publish.repository(state)}"
    files = publish.git(bare, "ls-tree", "-r", "--name-only", publish.BRANCH).split()
    assert {Path(name).parts[0] for name in files if "/" in name} == {"docs", "labs", "notebooks", "src"}
    assert publish.git(bare, "rev-list", "--all").count("\n") == 1
    assert "### BEGIN SOLUTION" not in publish.git(bare, "grep", "-h", "", publish.BRANCH, "--", "labs")
    pull(state, home)

    lab, broken = home / ENTRY, home / "notebooks" / "03_cpu_to_gpu.ipynb"
    book, at = notebook(lab), position("answer-scale_pixels")
    book.cells[at].source = book.cells[at].source.replace("# YOUR CODE HERE", "return pixels / 255")
    book.cells.insert(at + 1, nbformat.v4.new_code_cell("my_own_try = 1"))
    book.cells[0].source = "# My lab"
    nbformat.write(book, lab)
    work = lab.read_bytes()
    broken.write_text("not even a notebook any more")

    news = command.published(publish.publish(state, changed(tmp_path / "new", "SECOND EDITION")))
    assert "in lab 00 or 01 or 02 keeps" in news  # in lab 00, the title of what comes next
    pull(state, home)
    assert lab.read_bytes() == work and broken.read_text() == "not even a notebook any more"
    assert "SECOND EDITION" in notebook(home / "notebooks" / f"{LAB}.ipynb").cells[0].source
    assert "SECOND EDITION" in (home / "README.md").read_text()

    lab.rename(lab.with_name("mine.ipynb"))
    pull(state, home)
    assert lab.with_name("mine.ipynb").read_bytes() == work
    assert "SECOND EDITION" in notebook(lab).cells[at].source


def test_what_is_wrong_is_said_in_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """The hub does not start, and most of all not without a sandbox; what was tried leaves nothing behind."""
    need("bubblewrap")
    monkeypatch.setattr(os, "umask", lambda mask: None)  # it would be that of every later test, too

    def refusal(*words: str, state: str = "a") -> str:
        with pytest.raises(SystemExit) as raised:
            command.main(["--state", str(tmp_path / state), "--data", str(tmp_path), *words])
        return raised.value.code

    (tmp_path / "file").touch()
    assert "--state" in refusal(state="file")
    assert "at least 16 characters" in refusal("--password", "torchcourse")
    assert "without accents" in refusal("--password", "straßenbahn und so")
    assert "more than 0" in refusal("--memory", "0")
    with monkeypatch.context() as patch:
        broken = tmp_path / "bin" / "bwrap"
        broken.parent.mkdir()
        broken.write_text("#!/bin/sh\necho 'bwrap: No permissions to create a new namespace' >&2\nexit 1\n")
        broken.chmod(0o755)
        patch.setenv("PATH", str(broken.parent), prepend=os.pathsep)
        assert "create a new namespace." in refusal() and os.listdir(tmp_path / "a") == ["lock"]
        assert "runs already" in refusal()
        patch.setenv("PATH", str(tmp_path))
        assert "bwrap is not installed" in refusal(state="b")
    monkeypatch.setattr(npm, "fetch", lambda *_: tmp_path)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        assert "another --port" in refusal("--port", str(taken.getsockname()[1]), state="c")


def test_what_a_sandbox_shows(tmp_path: Path):
    """Only the home can be written, nothing of the hub and no solution is there, and root stays root."""
    home, own = tmp_path / "home" / "alice", tmp_path / "run" / "alice"
    for user in (None, sandbox.USERS[0]):
        sandbox.furnish(own, user, [])
        words = sandbox.arguments(home, sandbox.PACKAGES, tmp_path, own, user, sandbox.Memory(2**30, counted=False), 9)
        assert [words[i + 1] for i, word in enumerate(words) if word == "--bind"] == [str(home)]
        shown = [Path(words[i + 1]) for i, word in enumerate(words) if word.startswith("--ro-bind")]
        hidden = [ROOT / "solutions", ROOT / "tests" / "answers", tmp_path / "jupyterhub.sqlite", Path("/etc/shadow")]
        assert not [(h, s) for h in hidden for s in shown if h.is_relative_to(s)]
        assert ("--unshare-user" in words) == (user is None)  # it would show root under another name
        # What a program may hold stays within the student's share, also where nothing counts the sum.
        sizes = [words[i + 1] for i, word in enumerate(words) if word == "--size"]
        sizes += [word.removeprefix("--data=") for word in words if word.startswith("--data=")]
        assert len(sizes) == 3 and sum(map(int, sizes)) <= 2**30


def test_a_course_and_a_hub_among_programs_are_hidden(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Also where they lie in a folder that students see."""
    lib = tmp_path / "env" / "lib"
    state, home, own = lib / "hub", lib / "hub" / "home" / "alice", lib / "hub" / "run" / "alice"
    home.mkdir(parents=True)
    (lib / "course").mkdir()
    sandbox.furnish(own, None, [])
    monkeypatch.setattr(sys, "base_prefix", str(tmp_path / "env"))
    monkeypatch.setattr(sandbox, "ROOT", lib / "course")
    words = sandbox.arguments(home, [], state, own, None, sandbox.Memory(2**30, counted=False), 9)
    assert words.index(str(lib)) < words.index(str(lib / "course"))
    assert words.index(str(lib)) < words.index(str(state)) < words.index(str(home))
    how = [words[words.index(str(path)) - 1] for path in (lib / "course", state, home)]
    assert how == ["--tmpfs", "--tmpfs", "--bind"]


def test_a_home_belongs_to_one_user(tmp_path: Path):
    """Also one that was there before; and what a link in it points to stays with its owner."""
    if os.geteuid() != 0:
        pytest.skip("only root can give students users of their own")
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


def test_reports_at_once_then_one_a_second(monkeypatch: pytest.MonkeyPatch):
    """For each student alone."""
    now = 1000.0
    monkeypatch.setattr(board.time, "monotonic", lambda: now)
    counter = board.Board()
    assert sum(counter.allows("a") for _ in range(100)) == board.BURST and counter.allows("b")
    now += 4
    assert sum(counter.allows("a") for _ in range(100)) == 4


def test_the_right_password_opens_and_no_other():
    """Also after any number of wrong ones, and whatever they are; not from a sandbox."""
    chosen = {"user_password": PASSWORD, "admin_password": "x" * 32, "admin_users": {"instructor"}}
    door = passwords.ClassPassword(username_pattern=r"[a-z][a-z0-9]*\Z", **chosen)

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

    assert {status(name, f"guess {i}") for i in range(100) for name in ("instructor", f"name{i}")} == {403}
    assert status("alice", PASSWORD) == status("instructor", "x" * 32) == 200
    assert status("instructor", PASSWORD) == status("alice", PASSWORD, peer=passwords.FROM_INSIDE) == 403
    for odd in ("straße und so", "", None, ["a"]):
        assert status("bob", odd) == status(odd, PASSWORD) == 403


def executed(path: Path) -> Config:
    """What a configuration file sets."""
    config = Config()
    exec(compile(path.read_text(), path, "exec"), {"get_config": lambda: config, "__file__": str(path)})
    return config


def test_the_configuration_of_make_hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Settings arrive; names are folders, and the sandbox holds; only students' tokens report."""
    given = {"state": tmp_path, "data": tmp_path, "proxy": tmp_path, "ip": "127.0.0.1", "port": 8000, "hub_port": 1}
    given |= {"proxy_port": 2, "password": PASSWORD, "admin_password": "x", "memory_gib": 3, "board_port": 3}
    for name, value in settings.Settings(**given).environment().items():
        monkeypatch.setenv(name, value)
    c = executed(HUB / "jupyterhub_config.py")
    assert c.JupyterHub.bind_url == "http://127.0.0.1:8000" and c.JupyterHub.spawner_class is spawner.SandboxedSpawner
    assert c.JupyterHub.authenticator_class is passwords.ClassPassword and c.ClassPassword.user_password == PASSWORD
    allowed = re.compile(c.Authenticator.username_pattern).match  # as JupyterHub asks
    assert allowed("alice-2") and not any(map(allowed, ("../alice", "alice/../bob", "alice bob", "")))
    for admin in (True, False):
        scopes = c.Spawner.server_token_scopes(SimpleNamespace(user=SimpleNamespace(admin=admin)))
        assert (settings.REPORT in scopes) is not admin


def test_the_littlest_jupyterhub():
    """The snippet runs, names what the README's commands make, and its link is that of `make hub`."""
    readme = (HUB / "README.md").read_text()
    c = executed(HUB / "tljh" / "torchcourse.py")
    environment = c.Spawner.environment.to_dict()["update"]
    data, (_, repository) = environment["TORCHCOURSE_DATA"], c.SystemdSpawner.readonly_paths
    assert c.JupyterHub.default_url == publish.pull_path(Path("/srv/hub"))
    assert f"--root {data}" in readme and f"safe.directory {repository}" in readme
    assert repository == str(publish.repository(Path("/srv/hub")))
    for named in re.findall(r"(?<![\w/.])hub/[\w./-]*\w", readme):
        assert (ROOT / named).exists(), named


def test_zero_to_jupyterhub():
    """values.yaml is YAML with what a class needs, and goes with the Dockerfile and the README."""
    folder, readme = HUB / "zero-to-jupyterhub", (HUB / "README.md").read_text()
    values, docker = yaml.safe_load((folder / "values.yaml").read_text()), (folder / "Dockerfile").read_text()
    user = values["singleuser"]
    mounts = {mount["name"]: mount for mount in user["storage"]["extraVolumeMounts"].values()}
    assert mounts.keys() == {volume["name"] for volume in user["storage"]["extraVolumes"].values()}
    assert mounts["data"]["readOnly"] and mounts["data"]["mountPath"] == user["extraEnv"]["TORCHCOURSE_DATA"]
    link = parse_qs(urlsplit(values["hub"]["config"]["JupyterHub"]["default_url"]).query)
    assert link["targetPath"] == [publish.course_name()] and link["branch"] == [publish.BRANCH]
    assert "--file environment.yml" in docker and f"{user['image']['name']}:{user['image']['tag']}" in readme
    assert f"push {link['repo'][0]} {publish.BRANCH}" in readme


def test_on_a_cluster(monkeypatch: pytest.MonkeyPatch):
    """Both ways name what the README's commands make, with the same settings; what is filled in is a form's entry."""
    monkeypatch.setitem(sys.modules, "batchspawner", SimpleNamespace())
    course, app = Path("/project/torchcourse"), HUB / "open-ondemand"
    readme = (HUB / "README.md").read_text().replace("$course", str(course))
    c = executed(HUB / "batchspawner" / "torchcourse.py")
    assert c.JupyterHub.default_url == publish.pull_path(course / "hub") and f"--state {course}/hub" in readme
    assert c.SlurmSpawner.req_prologue == f"source {course}/venv/bin/activate" and f"-m venv {course}/venv" in readme
    text = {path.name: path.read_text() for path in app.rglob("*") if path.is_file()}
    script = text["script.sh.erb"].replace("$course", str(course))
    assert f'file://{publish.repository(course / "hub")}" {publish.BRANCH} {publish.course_name()}\n' in script
    for name, value in c.Spawner.environment.to_dict()["update"].items():
        assert name == "OMP_NUM_THREADS" or (f'{name}="{value}"' in script and Path(value).name in readme), name
    form, submit = yaml.safe_load(text["form.yml"]), re.sub(r"<%-.*?-%>\n", "", text["submit.yml.erb"])
    assert {*re.findall(r"(\w+)\.to_i %>", submit), "num_cores"} == {*form["attributes"]} <= {*form["form"]}
    assert "--cpus-per-task=2" in yaml.safe_load(re.sub(r"<%=.*?%>", "2", submit))["script"]["native"]
    for name in ("before.sh.erb", "script.sh.erb"):
        subprocess.run(["bash", "-n"], input=text[name], text=True, check=True)
