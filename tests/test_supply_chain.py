"""What comes from elsewhere is named exactly: packages by version and hash, GitHub's actions by commit."""

import base64
import hashlib
import io
import json
import re
import tarfile
import threading
import tomllib
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

import pytest
import yaml
from conftest import need
from packaging.requirements import Requirement

from tools import lock, npm
from tools.course import ROOT

# ---------------------------------------------------------------------------------------------------------------------
# npm

PACKAGES = [ROOT / "hub" / "package.json", ROOT / "tools" / "slides_theme" / "package.json"]


@pytest.mark.parametrize("wanted", PACKAGES, ids=lambda path: path.parent.name)
def test_every_npm_package_has_a_hash_and_no_registry_is_named(wanted):
    asked = json.loads(wanted.read_text())["dependencies"]
    lock = json.loads(wanted.with_name("package-lock.json").read_text())["packages"]
    assert lock.pop("")["dependencies"] == asked, "package.json and its lock ask for different versions"
    for name, version in asked.items():
        assert re.fullmatch(r"\d+\.\d+\.\d+", version) and lock[f"node_modules/{name}"]["version"] == version
    for name, package in lock.items():
        assert re.fullmatch(r"sha512-[A-Za-z0-9+/]{86}==", package.get("integrity", "")), name
        assert "resolved" not in package, f"{name}: the registry is the user's own choice"


@pytest.fixture
def registry(tmp_path, monkeypatch):
    """A registry with one package, which brings a script; returns a folder with a package.json and a right lock."""
    need("npm")
    content = {"package/package.json": {"name": "demo", "version": "1.0.0", "scripts": {"install": "touch was-run"}}}
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        for name, value in content.items():
            info = tarfile.TarInfo(name)
            info.size = len(data := json.dumps(value).encode())
            archive.addfile(info, io.BytesIO(data))
    served = tmp_path / "served"
    served.mkdir()
    (served / "demo.tgz").write_bytes(packed.getvalue())
    integrity = "sha512-" + base64.b64encode(hashlib.sha512(packed.getvalue()).digest()).decode()

    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, *words):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=served)) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        home = f"http://127.0.0.1:{server.server_port}"
        dist = {"tarball": f"{home}/demo.tgz", "integrity": integrity}
        about = {"name": "demo", "hasInstallScript": True, "dist": dist}
        versions = {version: about | {"version": version} for version in ("1.0.0", "2.0.0")}
        document = {"name": "demo", "dist-tags": {"latest": "2.0.0"}, "versions": versions}
        (served / "demo").write_text(json.dumps(document))
        monkeypatch.setenv("npm_config_registry", home)
        monkeypatch.setenv("npm_config_cache", str(tmp_path / "cache"))
        asked = {"dependencies": {"demo": "1.0.0"}}
        lock = {"": asked, "node_modules/demo": {"version": "1.0.0", "integrity": integrity, "hasInstallScript": True}}
        folder = tmp_path / "wanted"
        folder.mkdir()
        (folder / "package.json").write_text(json.dumps(asked))
        locked = {"name": "wanted", "lockfileVersion": 3, "requires": True, "packages": lock}
        (folder / "package-lock.json").write_text(json.dumps(locked))
        yield folder
        server.shutdown()


def test_npm_installs_what_the_lock_names_and_runs_no_script(registry, tmp_path):
    modules = npm.fetch(registry / "package.json", "a demo", tmp_path / "build")
    assert [path.name for path in (modules / "demo").iterdir()] == ["package.json"]


def test_a_package_with_another_hash_is_refused(registry, tmp_path):
    """Also where the right one was fetched before: a changed lock is another key."""
    npm.fetch(registry / "package.json", "a demo", tmp_path / "build")
    (kept,) = (tmp_path / "build" / "npm").iterdir()
    lock = registry / "package-lock.json"
    other = "sha512-" + base64.b64encode(hashlib.sha512(b"another package").digest()).decode()
    lock.write_text(re.sub(r"sha512-[^\"]+", other, lock.read_text()))
    with pytest.raises(npm.NpmError, match=r"EINTEGRITY.*not the one whose hash is in package-lock\.json"):
        npm.fetch(registry / "package.json", "a demo", tmp_path / "build")
    assert list((tmp_path / "build" / "npm").iterdir()) == [kept], "nothing half done is left"


def test_a_lock_that_does_not_fit_is_refused(registry, tmp_path):
    (registry / "package.json").write_text('{"dependencies": {"demo": "2.0.0"}}')
    with pytest.raises(npm.NpmError, match=r"do not agree: run `npm install --package-lock-only`"):
        npm.fetch(registry / "package.json", "a demo", tmp_path / "build")


# ---------------------------------------------------------------------------------------------------------------------
# Python

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
CONSTRAINTS = lock.packages((ROOT / "constraints.txt").read_text())
LOCK = lock.packages((ROOT / "requirements.lock").read_text())
MACHINES = [
    {"sys_platform": platform, "platform_system": system, "os_name": os_name, "platform_machine": machine}
    | {"python_version": python, "python_full_version": f"{python}.9", "implementation_name": "cpython"}
    for platform, system, os_name, machine in (
        ("linux", "Linux", "posix", "x86_64"),
        ("darwin", "Darwin", "posix", "arm64"),
        ("win32", "Windows", "nt", "AMD64"),
    )
    for python in ("3.11", "3.12", "3.13", "3.14")
]


def direct() -> list[Requirement]:
    """What pyproject.toml asks for, except for `make bench`, which has an environment of its own."""
    extras = PROJECT["project"]["optional-dependencies"]
    lines = [
        *PROJECT["project"]["dependencies"],
        *(line for name in extras if name != "bench" for line in extras[name]),
    ]
    return [each for each in map(Requirement, lines) if each.name != PROJECT["project"]["name"]]


def locked(name: str, machine: dict[str, str]) -> list[str]:
    """The versions of a package in constraints.txt that count on a machine."""
    lines = [Requirement(line) for line, _ in CONSTRAINTS.get(name, [])]
    return [str(line.specifier) for line in lines if line.marker is None or line.marker.evaluate(machine)]


@pytest.mark.parametrize("machine", MACHINES, ids=lambda each: f"{each['sys_platform']}-{each['python_version']}")
def test_the_lock_has_one_fitting_version_of_all_that_is_asked_for(machine):
    for asked in direct():
        (version,) = locked(asked.name, machine)
        assert asked.specifier.contains(version.removeprefix("==")), f"{asked}: `make lock`"


def test_every_version_is_exact_and_has_hashes_but_for_pytorch():
    for lines in CONSTRAINTS.values():
        for line, _ in lines:
            assert re.fullmatch(r"[a-z0-9-]+==[0-9][\w.]*( ; .+)?", line), line
    assert {name: [line for line, _ in lines] for name, lines in LOCK.items()} == {
        name: [line for line, _ in lines] for name, lines in CONSTRAINTS.items() if name not in lock.PYTORCH
    }, "the two files differ: `make lock`"
    for lines in LOCK.values():
        for line, hashes in lines:
            assert re.fullmatch(r"( \\\n    --hash=sha256:[0-9a-f]{64})+", hashes), line


def test_the_wheel_is_built_by_the_builder_of_the_lock():
    assert PROJECT["build-system"]["requires"] == [line for line, _ in CONSTRAINTS["hatchling"]]


# ---------------------------------------------------------------------------------------------------------------------
# GitHub

WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))


def steps(workflow: dict) -> list[dict]:
    return [step for job in workflow["jobs"].values() for step in job.get("steps", [])]


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_actions_are_named_by_commit_and_may_do_little(path):
    workflow = yaml.safe_load(path.read_text())
    assert workflow["permissions"] == {"contents": "read"}, "a job that needs more says so itself"
    used = [step for step in steps(workflow) if "uses" in step] + [j for j in workflow["jobs"].values() if "uses" in j]
    assert used, "nothing was looked at"
    for step in used:
        assert re.fullmatch(r"[\w./-]+@[0-9a-f]{40}", step["uses"]), step["uses"]
        if step["uses"].startswith("actions/checkout@"):
            assert step["with"]["persist-credentials"] is False
    for job in workflow["jobs"].values():
        assert set(job.get("permissions", {})) <= {"pages", "id-token"}


def test_what_is_pinned_is_kept_up_to_date():
    updates = yaml.safe_load((ROOT / ".github" / "dependabot.yml").read_text())["updates"]
    watched = {one["package-ecosystem"]: one.get("directories", [one.get("directory")]) for one in updates}
    assert watched.keys() == {"github-actions", "npm", "pip"}
    assert {ROOT / folder.strip("/") for folder in watched["npm"]} == {path.parent for path in PACKAGES}
