"""What comes from elsewhere is named exactly: packages by version and hash, GitHub's actions by commit."""

import base64
import hashlib
import io
import json
import re
import shutil
import tarfile
import threading
import tomllib
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

import pytest
import yaml
from conftest import need

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
    content = json.dumps({"name": "demo", "version": "1.0.0", "scripts": {"install": "touch was-run"}}).encode()
    packed, info = io.BytesIO(), tarfile.TarInfo("package/package.json")
    info.size = len(content)
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        archive.addfile(info, io.BytesIO(content))
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
    with pytest.raises(npm.CourseError, match=r"EINTEGRITY.*not the one whose hash is in package-lock\.json"):
        npm.fetch(registry / "package.json", "a demo", tmp_path / "build")
    assert list((tmp_path / "build" / "npm").iterdir()) == [kept], "nothing half done is left"


# ---------------------------------------------------------------------------------------------------------------------
# Python


def test_the_lock_fits_the_project_and_both_files_for_pip_come_from_it(monkeypatch, tmp_path):
    names = ("pyproject.toml", "uv.lock", "src/torchcourse/__init__.py")
    for name in names:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    monkeypatch.setattr(lock, "ROOT", tmp_path)
    lock.main(["--offline"])
    for name in (*names, "constraints.txt", "requirements.lock"):
        assert (tmp_path / name).read_text() == (ROOT / name).read_text(), f"{name}: `make lock`"


def test_a_lock_names_public_places_only_and_pytorch_has_no_hash():
    """PyTorch's wheels for CPU and CUDA differ: which ones you get is up to your index."""
    places = set(re.findall(r"\w+://[^/\s\"]+", (ROOT / "uv.lock").read_text()))
    assert places == {"https://pypi.org", "https://files.pythonhosted.org"}
    hashed, versions = (ROOT / "requirements.lock").read_text(), (ROOT / "constraints.txt").read_text()
    assert re.search(r"^torch==", versions, re.MULTILINE) and not re.search(r"^torch(vision)?==", hashed, re.MULTILINE)
    assert "://" not in hashed + versions


def test_the_wheel_is_built_by_the_builder_of_the_lock():
    (builder,) = tomllib.loads((ROOT / "pyproject.toml").read_text())["build-system"]["requires"]
    assert f"\n{builder}\n" in (ROOT / "constraints.txt").read_text()


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
        assert set(job.get("permissions", {})) <= {"pages", "id-token", "issues", "contents"}
