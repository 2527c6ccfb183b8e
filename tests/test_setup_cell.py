"""The first code cell of each notebook, run in environments as they are met: Colab, a hub, a laptop without network.

The environments are virtual environments that see the libraries of this one, but not torchcourse.
"""

import ast
import os
import re
import subprocess
import zipfile
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from conftest import skip_or_fail
from environments import ALSO_NEEDED, LEAST, new_environment, pretend_colab

import torchcourse
from tools import build, course, release
from torchcourse import device, importing, place

CHAPTER = course.chapters()[0]
REFUSED = "git+https://127.0.0.1:9/nothing.git"  # no program listens there: the same as having no network


def run_cell(python: Path, cwd: Path, package: str = "", **variables: str) -> str:
    """Everything that the set-up cell of chapter 00 shows when IPython runs it in the folder `cwd`.

    package: what a release puts into the cell; without it, it is the cell of an author's notebook.
    """
    code = build.setup_cell(CHAPTER).source.replace(release.UNRELEASED, f'PACKAGE = "{package}"')
    env = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "TORCHCOURSE_SOURCE")}
    env |= {"HOME": str(cwd), "NO_COLOR": "1"} | variables
    command = [python, "-m", "IPython", "--no-banner", "--colors=NoColor", "-c", code]
    done = subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True, timeout=600)
    return done.stdout + done.stderr


def one_sentence(shown: str) -> bool:
    return "Traceback" not in shown and shown.strip().count("\n") == 0


def installed(python: Path) -> set[str]:
    done = subprocess.run([python, "-m", "pip", "freeze", "--all"], capture_output=True, text=True, check=True)
    return set(done.stdout.split("\n"))


@pytest.fixture(scope="module")
def python(tmp_path_factory):
    return new_environment(tmp_path_factory.mktemp("least"), (*LEAST, *ALSO_NEEDED))


def test_without_network_it_says_what_is_missing_and_stops(python, tmp_path):
    (tmp_path / "torchcourse").mkdir()  # what `git clone` leaves beside a notebook is not the package
    shown = run_cell(python, tmp_path, TORCHCOURSE_SOURCE=REFUSED, PIP_USER="1")
    assert f"Missing here: {REFUSED}" in shown and "offline" in shown and "pip install" in shown
    assert "--user" not in shown, "a virtual environment has no place for that"
    assert "PyTorch 2" not in shown and one_sentence(shown), "not the protocol of pip"


def plant(folder: Path) -> None:
    """A package of the course's name that is not the course."""
    (folder / "src" / "torchcourse").mkdir(parents=True)
    (folder / "src" / "torchcourse" / "__init__.py").write_text("setup = lambda chapter: print('planted')")


def test_the_copy_of_the_course_around_the_notebook_is_found_and_no_other(python, tmp_path):
    """Not in a folder where others may write, such as /tmp: above a lone notebook, and above the root of the course."""
    plant(tmp_path)
    labs = tmp_path / "course" / "labs"
    labs.mkdir(parents=True)
    assert "planted" not in run_cell(python, labs, TORCHCOURSE_SOURCE=REFUSED)
    (tmp_path / "course.toml").touch()
    (tmp_path / "course" / "course.toml").touch()  # nothing beyond the nearest root
    assert "planted" not in run_cell(python, labs, TORCHCOURSE_SOURCE=REFUSED)
    (tmp_path / "course" / "src").symlink_to(course.ROOT / "src")
    shown = run_cell(python, labs, TORCHCOURSE_SOURCE=REFUSED)
    assert f"torchcourse {torchcourse.__version__} · PyTorch {torch.__version__}" in shown, shown


def test_a_course_of_which_a_part_belongs_to_another_user_is_not_used(tmp_path, monkeypatch):
    """Also where their link leads to a file of ours."""
    plant(tmp_path)
    (tmp_path / "course.toml").touch()
    (tmp_path / "labs").mkdir()
    tree = ast.parse(build.setup_cell(CHAPTER).source)
    (function,) = [node for node in tree.body if getattr(node, "name", "") == "course_around"]
    exec(compile(ast.Module([function], []), "set-up cell", "exec"), names := {})
    lstat = Path.lstat
    for theirs in (None, ".", "course.toml", "src/torchcourse/__init__.py"):

        def owned(path, foreign=theirs and tmp_path / theirs):
            found = lstat(path)
            return SimpleNamespace(st_mode=found.st_mode, st_uid=found.st_uid + (path == foreign))

        monkeypatch.setattr(Path, "lstat", owned)
        assert names["course_around"](tmp_path / "labs") == ([] if theirs else [str(tmp_path / "src")])


def test_an_authors_notebook_alone_installs_nothing(python, tmp_path):
    shown = run_cell(python, tmp_path)
    assert shown.startswith("This notebook needs the copy of the course") and course.students() in shown, shown
    assert one_sentence(shown)


@pytest.fixture
def wheel(tmp_path) -> Path:
    """The wheel of a release, as if it were published in a folder of this machine."""
    (tmp_path / "published").mkdir()
    return release.build_wheel(tmp_path / "published")


def test_another_file_at_the_address_is_refused(python, tmp_path, wheel):
    """A wheel that pip would install without a word, had it not another hash."""
    address = release.address(wheel, wheel.parent.as_uri())
    with zipfile.ZipFile(wheel, "a") as archive:
        archive.writestr("torchcourse/more.py", "print('planted')")
    shown = run_cell(python, tmp_path, address)
    assert shown.startswith(f"The file at {wheel.as_uri()} is not the one") and course.students() in shown, shown
    assert one_sentence(shown) and not any(each.startswith("torchcourse") for each in installed(python))


@pytest.mark.weekly
def test_on_colab_it_installs_the_wheel_and_what_else_is_missing_from_the_package_index(tmp_path, wheel):
    """The real way, with the real package index. Nothing else changes."""
    fresh = new_environment(tmp_path / "least", LEAST)
    pretend_colab(fresh)
    before = installed(fresh)
    shown = run_cell(fresh, tmp_path, release.address(wheel, wheel.parent.as_uri()), CUDA_VISIBLE_DEVICES="")
    if "Missing here" in shown:
        skip_or_fail(f"no way to the package index: {shown}")
    assert f"torchcourse {torchcourse.__version__} · PyTorch {torch.__version__}" in shown, shown
    assert "Runtime > Change runtime type" in shown
    new = installed(fresh) - before
    assert before < installed(fresh) and {re.split("[ =]", each)[0] for each in new} == {"torchcourse", *ALSO_NEEDED}


def test_without_torch_or_pip_it_says_how_they_are_installed(tmp_path):
    shown = run_cell(new_environment(tmp_path / "bare", ("ipykernel", "pip")), tmp_path)
    assert "PyTorch is missing" in shown and "pip install torch torchvision" in shown and one_sentence(shown)
    uvs = new_environment(tmp_path / "uv", ("torch", "ipykernel"))
    shown = run_cell(uvs, tmp_path, TORCHCOURSE_SOURCE="torchcourse.whl")
    assert f"has no pip. In a terminal, run `uv pip install --python {uvs} --no-deps torchcourse.whl`" in shown, shown
    assert one_sentence(shown)


def test_too_old_torch_is_refused_in_one_sentence(monkeypatch, capsys):
    for version in ("1.13.1+cu117", "2.10.9"):
        monkeypatch.setattr(torch, "__version__", version)
        with pytest.raises(torchcourse.CourseError) as caught:
            torchcourse.setup("00_getting_started")
        assert f"PyTorch {version} is too old: this course needs 2.11 or newer" in str(caught.value)
        assert caught.value._render_traceback_() == [f"CourseError: {caught.value}"]
    for version in ("2.11.0+cpu", "2.15.0a0+git1234", "3.0.0"):
        monkeypatch.setattr(torch, "__version__", version)
        torchcourse.setup("00_getting_started")
        assert version in capsys.readouterr().out
    oldest = ".".join(map(str, importing.OLDEST_TORCH))
    assert f'"torch>={oldest}"' in (course.ROOT / "pyproject.toml").read_text()


# ---------------------------------------------------------------------------------------------------------------------
# Where a GPU could be switched on


@pytest.mark.parametrize(
    ("colab", "variables", "best", "clicks"),
    [
        (False, {}, "cpu", None),
        (True, {}, "mps", None),
        (True, {}, "cpu", "Runtime > Change runtime type"),
        (False, {"JUPYTERHUB_USER": "ada"}, "cpu", None),  # a hub whose servers are all alike
        (False, {"JUPYTERHUB_USER": "ada", "TORCHCOURSE_HUB_GPUS": "1"}, "cpu", "Hub Control Panel"),
    ],
)
def test_where_a_gpu_takes_a_few_clicks_the_first_cell_says_which(monkeypatch, capsys, colab, variables, best, clicks):
    """And goes on."""
    for name in [name for name in os.environ if name.startswith(("JUPYTERHUB_", "TORCHCOURSE_HUB_"))]:
        monkeypatch.delenv(name)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(place, "on_colab", lambda: colab)
    monkeypatch.setattr(device, "best", lambda: torch.device(best))
    torchcourse.setup("00_getting_started")
    first, *advice = capsys.readouterr().out.splitlines()
    assert "PyTorch" in first and len(advice) == (2 if clicks else 0)
    assert not clicks or ("goes on without" in advice[0] and clicks in advice[1])
    assert colab or all(len(line) <= 88 for line in advice)  # JupyterLab would break a longer one in mid-word
