"""The wheelhouse: exactly what is missing, and a machine without network runs a notebook with it."""

import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import nbformat
import pytest
from packaging.requirements import Requirement

from tools import wheelhouse
from tools.wheelhouse import Target, collect, frozen, platforms, wanted


def wheel(folder: Path, name: str, version: str, *needs: str) -> Path:
    """A wheel with nothing in it but its name and what it needs."""
    path = folder / f"{name}-{version}-py3-none-any.whl"
    lines = ["Metadata-Version: 2.1", f"Name: {name}", f"Version: {version}", *(f"Requires-Dist: {n}" for n in needs)]
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(f"{name}-{version}.dist-info/METADATA", "\n".join(lines) + "\n")
    return path


@pytest.fixture
def shop(monkeypatch, tmp_path):
    """In place of pip: the newest of the wheels below that will do."""
    goods = [
        ("a", "2.0", "b>=1", "c; sys_platform == 'win32'", "d; extra == 'fast'", "torch"),
        ("b", "1.5", "e"),
        ("b", "2.0", "e"),
        ("d", "1.0"),
        ("e", "1.0", "b<2"),
    ]
    asked = []

    def download(requirements, target, folder):
        found = {}
        for one in map(Requirement, requirements):
            asked.append(str(one))
            fitting = [g for g in goods if g[0] == one.name and one.specifier.contains(g[1])]
            if not fitting:
                raise wheelhouse.WheelhouseError(f"no {one}")
            found[one.name] = wheel(folder, *max(fitting, key=lambda g: g[1]))
        return found

    monkeypatch.setattr(wheelhouse, "download", download)
    return asked


def names(paths):
    return [path.name.removesuffix("-py3-none-any.whl") for path in paths]


def test_what_is_missing_is_collected_and_nothing_else(shop, tmp_path):
    found = collect([Requirement("a>=1")], Target(), tmp_path, say=lambda line: None)
    # torch is there; c is for Windows; d is for an extra that was not requested; e wants an older b than a does
    assert names(found) == ["a-2.0", "b-1.5", "e-1.0"] == names(sorted(tmp_path.glob("*.whl")))


def test_what_the_machine_has_stays_if_it_will_do(shop, tmp_path):
    target = Target(have={"torch": "2.11.0", "b": "1.7", "e": "0.9"})
    assert names(collect([Requirement("a"), Requirement("e>=1")], target, tmp_path, lambda line: None)) == [
        "a-2.0",
        "e-1.0",
    ]
    (tmp_path / "old").mkdir()
    target = Target(have={"torch": "2.11.0", "b": "0.5", "e": "1.0"})  # its b is too old
    assert names(collect([Requirement("a")], target, tmp_path / "old", lambda line: None)) == ["a-2.0", "b-2.0"]


def test_extras_bring_what_they_need(shop, tmp_path):
    found = collect([Requirement("a[fast]")], Target(have={"torch": "", "b": "1.5"}), tmp_path, lambda line: None)
    assert names(found) == ["a-2.0", "d-1.0"]


def test_a_wheel_that_is_not_to_be_had_is_one_sentence(tmp_path, monkeypatch, capsys):
    def download(*rest):
        raise wheelhouse.WheelhouseError("Not all wheels are to be had for Python 3.12: no such thing")

    monkeypatch.setattr(wheelhouse, "download", download)
    assert wheelhouse.main(["--packages", "no-such-thing", "--folder", str(tmp_path / "w")]) == 1
    assert "Not all wheels" in capsys.readouterr().err


def test_a_folder_with_other_things_is_left_alone(tmp_path, capsys):
    (tmp_path / "thesis.tex").write_text("years of work")
    assert wheelhouse.main(["--folder", str(tmp_path)]) == 1
    assert (tmp_path / "thesis.tex").exists() and "choose another folder" in capsys.readouterr().err


def test_freeze_is_read():
    text = (
        "numpy==2.1.0\ntorch==2.11.0+cu130\n# a comment\nTyping_Extensions==4.12\n-e git+x@y#egg=z\nown @ file:///x\n"
    )
    assert frozen(text) == {"numpy": "2.1.0", "torch": "2.11.0", "typing-extensions": "4.12", "own": ""}


def test_platforms_that_will_do():
    found = platforms("manylinux_2_28_x86_64")
    assert found[0] == "manylinux_2_28_x86_64" and {"manylinux_2_17_x86_64", "manylinux2014_x86_64"} <= set(found)
    assert "manylinux2014_x86_64" not in platforms("manylinux_2_12_x86_64")
    assert platforms("macosx_11_0_arm64") == ["macosx_11_0_arm64"]
    assert Target(platform="manylinux_2_28_aarch64").markers()["platform_machine"] == "aarch64"
    assert Target(platform="macosx_11_0_arm64").markers()["sys_platform"] == "darwin"


def test_the_course_asks_for_what_runs_it_and_never_for_pytorch():
    found = {one.name for one in wanted()}
    assert {"papermill", "ipykernel", "nbconvert", "pytest", "cloudpickle"} <= found
    assert not {"torch", "torchvision", "jupyterlab"} & found


@pytest.mark.slow
def test_a_machine_with_only_pytorch_runs_a_notebook_without_network(tmp_path):
    """A real environment that has PyTorch, gets the wheels without an index, and executes a cell on a tensor."""
    here = f"{sys.version_info.major}.{sys.version_info.minor}"
    house = tmp_path / "house"
    options = ["--packages", "ipykernel", "nbclient", "--python", here, "--folder", str(house)]
    if sys.platform != "linux" or sysconfig.get_platform() != "linux-x86_64":
        pytest.skip("the wheels of this test are for Linux on x86-64")
    if wheelhouse.main(options):
        pytest.skip("no package index in reach")

    venv.create(tmp_path / "venv", with_pip=False)
    python = tmp_path / "venv" / "bin" / "python"
    ours = Path(sysconfig.get_path("purelib"))
    theirs = Path(sysconfig.get_path("purelib", "venv", vars={"base": tmp_path / "venv"}))
    for pattern in ("torch", "torchgen", "numpy*", "nvidia", "sympy", "mpmath", "networkx", "jinja2", "markupsafe",
                    "filelock", "fsspec", "typing_extensions.py", "triton", "cuda"):  # fmt: skip
        for path in ours.glob(pattern):
            (theirs / path.name).symlink_to(path)

    pip = [sys.executable, "-m", "pip", "--python", python, "install", "-q", "--no-index", "--no-deps", "--no-compile"]
    subprocess.run([*pip, "--disable-pip-version-check", *house.glob("*.whl")], check=True)
    cell = nbformat.v4.new_code_cell("import torch\nprint(int(torch.ones(6).sum()))", id="one")
    nbformat.write(nbformat.v4.new_notebook(cells=[cell]), tmp_path / "small.ipynb")
    script = (
        "import nbformat, sys; from nbclient import NotebookClient\n"
        "notebook = nbformat.read('small.ipynb', 4); NotebookClient(notebook).execute()\n"
        "print(notebook.cells[0].outputs[0].text)"
    )
    environment = {"PATH": f"{python.parent}:/usr/bin:/bin", "HOME": str(tmp_path)}
    done = subprocess.run([python, "-c", script], cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.stdout.strip() == "6", done.stderr
    assert "install --no-index" in (house / "install.txt").read_text()
