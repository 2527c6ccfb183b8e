"""The first code cell of each notebook, run in environments as they are met: Colab, a hub, a laptop without network.

The environments are virtual environments that see the libraries of this one, but not torchcourse.
"""

import json
import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest
import torch

import torchcourse
from tools import build, course

CHAPTER = course.chapters()[0]
REFUSED = "git+https://127.0.0.1:9/nothing.git"  # nobody listens there: the same as having no network


def new_environment(folder: Path, hidden: tuple[str, ...]) -> Path:
    """A virtual environment that sees all installed packages except the hidden ones; returns its Python.

    The others are linked from a folder outside of it, so that pip there can see but never touch them.
    """
    links = folder / "libraries"
    links.mkdir(parents=True)
    for path in Path(sysconfig.get_path("purelib")).iterdir():
        name = path.name.lower().lstrip("_")
        if not name.startswith(hidden) and path.suffix != ".pth" and name != "__pycache__":
            (links / path.name).symlink_to(path)
    subprocess.run([sys.executable, "-m", "venv", folder / "venv"], check=True)
    (site,) = (folder / "venv").glob("lib/python*/site-packages")
    (site / "libraries.pth").write_text(f"{links}\n")
    return folder / "venv" / "bin" / "python"


def run_cell(python: Path, cwd: Path, **variables: str) -> str:
    """Everything that the set-up cell of chapter 00 shows when IPython runs it in the folder `cwd`."""
    code = build.setup_cell(CHAPTER).source
    env = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"} | {"HOME": str(cwd), "NO_COLOR": "1"} | variables
    command = [python, "-m", "IPython", "--no-banner", "--colors=NoColor", "-c", code]
    done = subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True, timeout=300)
    return done.stdout + done.stderr


def versions(python: Path) -> dict[str, str]:
    done = subprocess.run([python, "-m", "pip", "list", "--format=json"], capture_output=True, text=True, check=True)
    return {package["name"]: package["version"] for package in json.loads(done.stdout)}


@pytest.fixture(scope="module")
def python(tmp_path_factory):
    return new_environment(tmp_path_factory.mktemp("colab"), hidden=("torchcourse", "editable_impl_torchcourse"))


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """The package as the cell would fetch it, built from this tree."""
    folder = tmp_path_factory.mktemp("wheel")
    command = [
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "-q",
        "--no-deps",
        "--no-build-isolation",
        "-w",
        folder,
        course.ROOT,
    ]
    subprocess.run(command, check=True)
    return str(next(folder.glob("*.whl")))


def test_without_network_it_says_what_is_missing_and_stops(python, tmp_path):
    shown = run_cell(python, tmp_path, TORCHCOURSE_SOURCE=REFUSED)
    assert f"Missing here: {REFUSED}" in shown and "offline" in shown and "pip install" in shown
    assert "Traceback" not in shown and "PyTorch 2" not in shown


def test_a_copy_of_the_course_around_the_notebook_is_found(python, tmp_path):
    (tmp_path / "course" / "labs").mkdir(parents=True)
    (tmp_path / "course" / "src").symlink_to(course.ROOT / "src")
    shown = run_cell(python, tmp_path / "course" / "labs", TORCHCOURSE_SOURCE=REFUSED)
    assert f"torchcourse {torchcourse.__version__} · PyTorch {torch.__version__}" in shown, shown


def test_a_folder_of_the_same_name_is_not_mistaken_for_the_package(python, tmp_path):
    (tmp_path / "torchcourse").mkdir()  # what `git clone` leaves beside a notebook
    assert "Missing here" in run_cell(python, tmp_path, TORCHCOURSE_SOURCE=REFUSED)


def test_it_installs_the_package_and_leaves_everything_else_alone(python, wheel, tmp_path):
    before = versions(python)
    assert "torchcourse" not in before and "torch" in before and "torchvision" in before
    shown = run_cell(python, tmp_path, TORCHCOURSE_SOURCE=wheel)
    assert f"torchcourse {torchcourse.__version__} · PyTorch {torch.__version__}" in shown, shown
    after = versions(python)
    assert after.pop("torchcourse") == torchcourse.__version__
    assert after == before


def test_without_torch_it_says_so(tmp_path):
    bare = new_environment(tmp_path, hidden=("torch", "editable_impl_torchcourse"))
    shown = run_cell(bare, tmp_path)
    assert "PyTorch is missing" in shown and "pip install torch torchvision" in shown and "Traceback" not in shown


def test_too_old_torch_is_refused_in_one_sentence(monkeypatch):
    monkeypatch.setattr(torch, "__version__", "2.5.1+cu121")
    with pytest.raises(torchcourse.CourseError) as caught:
        torchcourse.setup("00_getting_started")
    assert "needs PyTorch 2.11 or newer and found 2.5.1+cu121" in str(caught.value)
    assert caught.value._render_traceback_() == [f"CourseError: {caught.value}"]


@pytest.mark.parametrize("version", ["2.11.0", "2.11.0+cpu", "2.15.0a0+git1234", "3.0.0"])
def test_new_enough_torch_is_accepted(monkeypatch, capsys, version):
    monkeypatch.setattr(torch, "__version__", version)
    torchcourse.setup("00_getting_started")
    assert version in capsys.readouterr().out


def test_the_oldest_torch_is_the_one_in_pyproject():
    oldest = ".".join(map(str, torchcourse.OLDEST_TORCH))
    assert f'"torch>={oldest}"' in (course.ROOT / "pyproject.toml").read_text()
