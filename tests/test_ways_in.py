"""Ways into the course that a stranger meets: Binder, Codespaces, packages, citation, contribution."""

import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest
import yaml
from conftest import skip_or_fail
from packaging.requirements import Requirement

import torchcourse
from tools import course
from tools.course import ROOT

EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]

# ---------------------------------------------------------------------------------------------------------------------
# Binder and Codespaces


def test_what_binder_and_codespaces_install_is_what_the_project_has(tmp_path):
    """The script runs with commands that only write down how they were called."""
    calls = tmp_path / "calls"
    for name in ("python", "torchcourse"):
        command = tmp_path / name
        command.write_text(f'#!/bin/sh\necho {name} "$@" >> "{calls}"\n')
        command.chmod(0o755)
    path = f"{tmp_path}{os.pathsep}{os.environ['PATH']}"
    subprocess.run(["bash", ".binder/postBuild"], cwd=ROOT, env=os.environ | {"PATH": path}, check=True)
    pytorch, kit, data = (line.split() for line in calls.read_text().splitlines())
    for words in (pytorch, kit):
        assert words[:4] == ["python", "-m", "pip", "install"]
        assert (ROOT / words[words.index("-c") + 1]).is_file()
    assert {"torch", "torchvision", "--no-deps"} <= set(pytorch)
    assert kit[-2] == "-e" and Requirement(f"torchcourse{kit[-1].removeprefix('.')}").extras <= set(EXTRAS)
    assert data[:3] == ["torchcourse", "data", "fetch"]
    known = subprocess.run(
        [sys.executable, "-m", "torchcourse.commands.cli", *data[1:3], "--help"], capture_output=True, text=True
    )
    assert all(name in known.stdout for name in data[3:])


def test_binder_and_codespaces_offer_a_python_that_the_project_takes():
    container = json.loads((ROOT / ".devcontainer" / "devcontainer.json").read_text())
    binder = yaml.safe_load((ROOT / ".binder" / "environment.yml").read_text())
    offered = [container["image"].rpartition(":")[2]]
    offered += [line.partition("=")[2] for line in binder["dependencies"] if line.startswith("python=")]
    allowed = Requirement(f"python{tomllib.loads((ROOT / 'pyproject.toml').read_text())['project']['requires-python']}")
    assert len(offered) == 2 and all(allowed.specifier.contains(version) for version in offered)
    assert container["postCreateCommand"] == "bash .binder/postBuild"
    assert all((ROOT / name).is_file() for name in container["customizations"]["codespaces"]["openFiles"])


# ---------------------------------------------------------------------------------------------------------------------
# Packages


@pytest.fixture(scope="module")
def packages(tmp_path_factory) -> dict[str, Path]:
    """A wheel and an sdist of the project, built from a copy that has nothing but what git would have."""
    copy = tmp_path_factory.mktemp("project")
    for name in ("pyproject.toml", "README.md", "LICENSE", "LICENSE-TEXT"):
        shutil.copy2(ROOT / name, copy)
    shutil.copytree(ROOT / "src", copy / "src", ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    build = [sys.executable, "-m", "hatchling", "build", "--directory", str(copy / "dist")]
    subprocess.run(build, cwd=copy, check=True, capture_output=True)
    built = {"wheel" if path.suffix == ".whl" else "sdist": path for path in (copy / "dist").iterdir()}
    assert len(built) == 2
    return built


def test_packages_satisfy_the_index(packages):
    done = subprocess.run(
        [sys.executable, "-m", "twine", "check", "--strict", *packages.values()], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout


def test_packages_hold_every_file_of_the_package_and_no_other(packages):
    parts = (path.relative_to(ROOT / "src") for path in (ROOT / "src").rglob("*") if path.is_file())
    files = {part.as_posix() for part in parts if "__pycache__" not in part.parts}
    with zipfile.ZipFile(packages["wheel"]) as archive:
        assert {name for name in archive.namelist() if ".dist-info/" not in name} == files
    with tarfile.open(packages["sdist"]) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {name.removeprefix("src/") for name in names if name.startswith("src/")} == files


@pytest.mark.slow
def test_packages_install_in_an_empty_environment(packages, tmp_path):
    """The wheel with what it needs, PyTorch included, which uv takes from its cache; then the sdist in its place."""
    uv = shutil.which("uv", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    if uv is None:
        skip_or_fail("uv is not installed")
    subprocess.run([uv, "venv", "--quiet", "--python", sys.executable, tmp_path / "venv"], check=True)
    python = tmp_path / "venv" / "bin" / "python"
    install = [
        uv,
        "pip",
        "install",
        "--quiet",
        "--link-mode",
        "symlink",
        "--python",
        python,
        "--constraint",
        ROOT / "constraints.txt",
    ]
    for way in ([packages["wheel"]], ["--no-deps", "--reinstall-package", "torchcourse", packages["sdist"]]):
        done = subprocess.run([*install, *way], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
    here = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONHOME")}
    plan = [tmp_path / "venv" / "bin" / "torchcourse", "plan", "7B", "--ranks", "8"]
    done = subprocess.run(plan, cwd=tmp_path, env=here, capture_output=True, text=True)
    assert done.returncode == 0 and "each rank holds" in done.stdout, done.stdout + done.stderr
    code = "import torchcourse; from torchcourse import measurements; print(len(measurements.load('ddp')))"
    done = subprocess.run([python, "-c", code], cwd=tmp_path, env=here, capture_output=True, text=True)
    assert done.returncode == 0 and int(done.stdout) > 0, done.stderr


# ---------------------------------------------------------------------------------------------------------------------
# Pages for strangers


def test_the_citation_is_of_this_version_and_address():
    about = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert str(about["version"]) == torchcourse.__version__, "run `make build`"
    assert about["repository-code"] == course.address(), "run `make build`"
    assert {"cff-version", "message", "title", "authors"} <= set(about)


def test_the_changelog_knows_this_version():
    assert f"\n## {torchcourse.__version__}\n" in (ROOT / "CHANGELOG.md").read_text()


@pytest.mark.parametrize(
    "form", sorted((ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml")), ids=lambda path: path.stem
)
def test_issue_forms_have_the_shape_that_github_reads(form):
    about = yaml.safe_load(form.read_text())
    assert about["name"] and about["description"] and about["body"]
    ids = [part["id"] for part in about["body"] if part["type"] != "markdown"]
    assert len(ids) == len(set(ids))
    for part in about["body"]:
        assert (
            part["type"] in ("input", "textarea", "dropdown", "checkboxes", "markdown") and part["attributes"]["label"]
        )


PAGES = [
    "README.md",
    "CONTRIBUTING.md",
    "CHANGELOG.md",
    *(f"docs/{path.name}" for path in (ROOT / "docs").glob("*.md")),
]


@pytest.mark.parametrize("page", PAGES)
def test_links_and_commands_lead_somewhere(page):
    text = (ROOT / page).read_text()
    slugs = {
        re.sub(r"[^\w\- ]", "", line.lstrip("# ").lower()).replace(" ", "-")
        for line in text.splitlines()
        if line[:1] == "#"
    }
    for link in re.findall(r"\]\(([^)\s]+)\)", text):
        target, _, anchor = link.partition("#")
        assert link.startswith("https://") or not target or (ROOT / page).parent.joinpath(target).exists(), link
        assert target or anchor in slugs, link
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = set(
        re.findall(
            r"\bmake ([a-z-]+)\b",
            " ".join(re.findall(r"`[^`]+`|^make .*$", text.replace("make room", ""), re.MULTILINE)),
        )
    )
    assert named <= targets, named - targets


def test_the_lines_for_apt_work_beside_another_nodejs():
    """Debian's npm conflicts with the Node.js of others, and then apt installs nothing of its line."""
    pages = "\n".join(page.read_text() for place in ("*", "docs/*", "hub/**/*") for page in ROOT.glob(f"{place}.md"))
    lines = re.findall(r"^.*apt(?:-get)? install.*\bnpm\b.*$", pages, re.MULTILINE)
    assert lines and all(re.search(r"command -v npm \|\| (sudo )?apt install npm *#", line) for line in lines), lines


def test_the_packages_that_ci_installs_are_named():
    readme = (ROOT / "docs" / "install.md").read_text()
    named = {word for line in re.findall(r"apt install ([^#`\n]*)#", readme) for word in line.split()}
    script = (ROOT / ".ci" / "run").read_text()
    installed = {word for words in re.findall(r"needed\+=\((.*)\)", script) for word in words.split()}
    assert installed - named == {"git", "fonts-dejavu"} and named <= installed
