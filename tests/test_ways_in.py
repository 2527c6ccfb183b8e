"""Ways into the course that a stranger meets: Binder, Codespaces, packages, citation, contribution."""

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml
from conftest import skip_or_fail
from packaging.requirements import Requirement

from tools import release
from tools.course import ROOT
from torchcourse.data import catalog

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]

# ---------------------------------------------------------------------------------------------------------------------
# Binder and Codespaces


def test_what_binder_and_codespaces_install_is_what_the_project_has(tmp_path):
    """The script runs with commands that only write down how they were called, on a Python that the project takes."""
    calls = tmp_path / "calls"
    for name in ("python", "torchcourse"):
        (tmp_path / name).write_text(f'#!/bin/sh\necho {name} "$@" >> "{calls}"\n')
        (tmp_path / name).chmod(0o755)
    path = f"{tmp_path}{os.pathsep}{os.environ['PATH']}"
    subprocess.run(["bash", ".binder/postBuild"], cwd=ROOT, env=os.environ | {"PATH": path}, check=True)
    pytorch, kit, data = (line.split() for line in calls.read_text().splitlines())
    for words in (pytorch, kit):
        assert words[:4] == ["python", "-m", "pip", "install"]
        assert (ROOT / words[words.index("-c") + 1]).is_file()
    assert {"torch", "torchvision", "--no-deps"} <= set(pytorch)
    assert kit[-2] == "-e"
    assert Requirement(f"torchcourse{kit[-1].removeprefix('.')}").extras <= set(PROJECT["optional-dependencies"])
    assert data[:3] == ["torchcourse", "data", "fetch"] and set(data[3:]) <= {"all", *catalog.SPECS}
    container = json.loads((ROOT / ".devcontainer" / "devcontainer.json").read_text())
    binder = yaml.safe_load((ROOT / ".binder" / "environment.yml").read_text())
    offered = [container["image"].rpartition(":")[2]]
    offered += [line.partition("=")[2] for line in binder["dependencies"] if line.startswith("python=")]
    allowed = Requirement(f"python{PROJECT['requires-python']}").specifier
    assert len(offered) == 2 and all(allowed.contains(version) for version in offered)
    assert container["postCreateCommand"] == "bash .binder/postBuild"
    assert all((ROOT / name).is_file() for name in container["customizations"]["codespaces"]["openFiles"])


def test_the_images_are_made_of_what_the_project_and_a_release_have():
    """Without Docker and Apptainer: what both copy is there, also in a student's folder."""
    text, definition = (ROOT / "Dockerfile").read_text(), (ROOT / "apptainer.def").read_text()
    lines = re.findall(r"^COPY (.+)$", re.sub(r"\\\n *", "", text), re.MULTILINE)
    copied = {name for line in lines for name in line.split()[:-1]}
    assert copied <= {"src", *release.FILES} and {"pyproject.toml", *PROJECT["license-files"]} <= copied
    files = re.search(r"^%files\n((?: .*\n)+)", definition, re.MULTILINE)[1]
    assert {line.split()[0] for line in files.splitlines()} == copied
    (image,) = re.findall(r"^FROM (python:.+)$", text, re.MULTILINE)
    assert f"\nFrom: {image}\n" in definition
    assert Requirement(f"python{PROJECT['requires-python']}").specifier.contains(*re.findall(r":([\d.]+)", image))


# ---------------------------------------------------------------------------------------------------------------------
# Packages


@pytest.fixture(scope="module")
def packages(tmp_path_factory) -> dict[str, Path]:
    """A wheel and an sdist of the project."""
    folder = tmp_path_factory.mktemp("dist")
    build = [sys.executable, "-m", "hatchling", "build", "--directory", str(folder)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    built = {"wheel" if path.suffix == ".whl" else "sdist": path for path in folder.iterdir()}
    assert len(built) == 2
    return built


def test_packages_satisfy_the_index(packages):
    """That they hold every file of the package and no other is asked in tests/test_release.py."""
    command = [sys.executable, "-m", "twine", "check", "--strict", *packages.values()]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


@pytest.mark.weekly
def test_packages_install_in_an_empty_environment(packages, tmp_path):
    """The wheel with what it needs, PyTorch included, which uv takes from its cache; then the sdist in its place."""
    uv = shutil.which("uv", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    if uv is None:
        skip_or_fail("uv is not installed")
    here = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONHOME")}

    def succeeds(*command: str | Path) -> str:
        done = subprocess.run(command, cwd=tmp_path, env=here, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    succeeds(uv, "venv", "--quiet", "--python", sys.executable, tmp_path / "venv")
    python = tmp_path / "venv" / "bin" / "python"
    install = [uv, "pip", "install", "--quiet", "--link-mode", "symlink", "--python", python]
    install += ["--constraint", ROOT / "constraints.txt"]
    for way in ([packages["wheel"]], ["--no-deps", "--reinstall-package", "torchcourse", packages["sdist"]]):
        succeeds(*install, *way)
    assert "each rank holds" in succeeds(python.with_name("torchcourse"), "plan", "7B", "--ranks", "8")
    code = "import torchcourse; from torchcourse import measurements; print(len(measurements.load('ddp')))"
    assert int(succeeds(python, "-c", code)) > 0


# ---------------------------------------------------------------------------------------------------------------------
# Pages for strangers


PAGES = [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")]


def test_links_and_commands_lead_somewhere():
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for page in PAGES:
        text = page.read_text()
        headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
        slugs = {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
        for link in re.findall(r"\]\(([^)\s]+)\)", text):
            target, _, anchor = link.partition("#")
            assert link.startswith("https://") or not target or (page.parent / target).exists(), f"{page}: {link}"
            assert target or anchor in slugs, f"{page}: {link}"
        commands = " ".join(re.findall(r"`[^`]+`|^make .*$", text.replace("make room", ""), re.MULTILINE))
        assert set(re.findall(r"\bmake ([a-z-]+)\b", commands)) <= targets, page


OTHERS = "Errno|403|No such kernel|NameError|no kernel image|CUDA out|0x|wsl|ensurepip|`df`"


def test_the_messages_of_troubleshooting_are_those_of_the_course():
    """Those of other programs aside. Strings that Python joins are joined here."""
    code = "\n".join(path.read_text() for folder in ("src", "tools") for path in (ROOT / folder).rglob("*.py"))
    code = re.sub(r'"\n *f?"', "", code)
    page = (ROOT / "docs" / "troubleshooting.md").read_text()
    said = re.findall(r"^\| (``.+?``|`[^`]+`)[^|]*\| .+\| ", page, re.MULTILINE)
    said += re.findall(r"`[^`]+`", "".join(re.findall(r"\*\*You see\*\*.*", page)))
    ours = [words.strip("`") for words in said if not re.search(OTHERS, words)]
    assert len(ours) > 10 and [words for words in ours if words.split(",")[0] not in code] == []
