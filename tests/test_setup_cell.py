"""The first code cell of each notebook, run in environments as they are met: Colab, a hub, a laptop without network.

The environments are virtual environments that see the libraries of this one, but not torchcourse.
"""

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest
import torch
from conftest import skip_or_fail
from environments import ALSO_NEEDED, COLAB, new_environment, pretend_colab

import torchcourse
from tools import build, course
from torchcourse import place

CHAPTER = course.chapters()[0]
REFUSED = "git+https://127.0.0.1:9/nothing.git"  # nobody listens there: the same as having no network


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
    return new_environment(tmp_path_factory.mktemp("colab"), (*COLAB, *ALSO_NEEDED))


def test_without_network_it_says_what_is_missing_and_stops(python, tmp_path):
    shown = run_cell(python, tmp_path, TORCHCOURSE_SOURCE=REFUSED)
    assert f"Missing here: {REFUSED}" in shown and "offline" in shown and "pip install" in shown
    assert "Traceback" not in shown and "PyTorch 2" not in shown
    assert shown.strip().count("\n") == 0, "one sentence, not the protocol of pip"


def test_a_copy_of_the_course_around_the_notebook_is_found(python, tmp_path):
    (tmp_path / "course" / "labs").mkdir(parents=True)
    (tmp_path / "course" / "src").symlink_to(course.ROOT / "src")
    shown = run_cell(python, tmp_path / "course" / "labs", TORCHCOURSE_SOURCE=REFUSED)
    assert f"torchcourse {torchcourse.__version__} · PyTorch {torch.__version__}" in shown, shown


def test_a_folder_of_the_same_name_is_not_mistaken_for_the_package(python, tmp_path):
    (tmp_path / "torchcourse").mkdir()  # what `git clone` leaves beside a notebook
    assert "Missing here" in run_cell(python, tmp_path, TORCHCOURSE_SOURCE=REFUSED)


@pytest.fixture
def published(tmp_path) -> str:
    """A git repository with this tree, tagged with the version: what the address in course.toml will lead to."""
    repository = tmp_path / "published"
    repository.mkdir()
    for name in ("pyproject.toml", "README.md", "LICENSE", "LICENSE-TEXT"):
        shutil.copy(course.ROOT / name, repository)
    shutil.copytree(course.ROOT / "src", repository / "src", ignore=shutil.ignore_patterns("__pycache__"))
    someone = ["-c", "user.name=Somebody", "-c", "user.email=somebody@example.org", "-c", "commit.gpgsign=false"]
    for command in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", "Published"], ["tag", build.tag()]):
        subprocess.run(["git", *someone, *command], cwd=repository, check=True)
    return f"git+file://{repository}@{build.tag()}"


@pytest.mark.slow
def test_on_colab_it_installs_the_tag_and_what_else_is_missing_from_the_package_index(tmp_path, published):
    """The real way, with the real package index; only the repository lies on this machine. Nothing else changes."""
    fresh = new_environment(tmp_path / "colab", COLAB)
    pretend_colab(fresh)
    before = versions(fresh)
    shown = run_cell(fresh, tmp_path, TORCHCOURSE_SOURCE=published, CUDA_VISIBLE_DEVICES="")
    if "Missing here" in shown:
        skip_or_fail(f"no way to the package index: {shown}")
    assert f"torchcourse {torchcourse.__version__} · PyTorch {torch.__version__}" in shown, shown
    assert "Runtime > Change runtime type" in shown
    after = versions(fresh)
    assert after.keys() - before.keys() == {"torchcourse", *ALSO_NEEDED}
    assert before.items() <= after.items()


def test_without_torch_it_says_so(tmp_path):
    bare = new_environment(tmp_path, ("ipykernel", "pip"))
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


# ---------------------------------------------------------------------------------------------------------------------
# Where a GPU could be switched on


@pytest.fixture
def no_gpu(monkeypatch):
    """A laptop without a GPU, from which the tests below make other places."""
    monkeypatch.setattr(place.device, "best", lambda: torch.device("cpu"))
    monkeypatch.setattr(place, "on_colab", lambda: False)
    for name in list(os.environ):
        if name.startswith("JUPYTERHUB_"):
            monkeypatch.delenv(name)


def test_on_a_laptop_nobody_is_told_to_switch_a_gpu_on(no_gpu):
    assert place.gpu_advice() is None


def test_on_colab_the_first_cell_says_how_to_switch_a_gpu_on_and_goes_on(no_gpu, monkeypatch, capsys):
    monkeypatch.setattr(place, "on_colab", lambda: True)
    torchcourse.setup("00_getting_started")
    first, second = capsys.readouterr().out.splitlines()
    assert "PyTorch" in first and "goes on without" in second and "Runtime > Change runtime type" in second


@pytest.mark.parametrize(("build_for", "told"), [("13.0", True), (None, False)])
def test_on_a_hub_only_a_build_for_gpus_hopes_for_one(no_gpu, monkeypatch, build_for, told):
    monkeypatch.setenv("JUPYTERHUB_USER", "ada")
    monkeypatch.setattr(torch.version, "cuda", build_for)
    advice = place.gpu_advice()
    assert bool(advice) is told and (not told or "Hub Control Panel" in advice)


def test_who_has_a_gpu_is_told_nothing(no_gpu, monkeypatch):
    monkeypatch.setattr(place, "on_colab", lambda: True)
    monkeypatch.setattr(place.device, "best", lambda: torch.device("cuda"))
    assert place.gpu_advice() is None


def test_colab_is_known_by_its_package(monkeypatch, tmp_path):
    assert not place.on_colab()
    (tmp_path / "google" / "colab").mkdir(parents=True)
    (tmp_path / "google" / "colab" / "__init__.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    assert place.on_colab()
