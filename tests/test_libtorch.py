"""The C++ of chapter 12, built and run outside the notebook: the program with CMake, and the operator.

The lecture itself, which `make run` executes, builds both with g++.

The sources are those of the lecture's `%%writefile` cells. Without a compiler the tests are skipped with a sentence,
and with CI=true they fail.
"""

import subprocess
import sys
from pathlib import Path

import jupytext
import pytest
import torch
from conftest import need
from support.answers import right
from torch import nn

from labcheck import evaluate
from tools.course import ROOT

TORCH = Path(torch.__file__).parent
INCLUDE = [f"-I{TORCH / 'include'}", f"-I{TORCH / 'include/torch/csrc/api/include'}"]
LINK = [f"-L{TORCH / 'lib'}", f"-Wl,-rpath,{TORCH / 'lib'}", "-Wl,--no-as-needed"]
MAGIC = "%%writefile "


def run(*command: object, **options) -> subprocess.CompletedProcess:
    return subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=600, **options)


def built(*command: object) -> None:
    done = run(*command)
    assert done.returncode == 0, (done.stdout + done.stderr)[-3000:]


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """The lecture's files, two images' worth of bytes among them."""
    need("compiler")
    folder = tmp_path_factory.mktemp("libtorch")
    for cell in jupytext.read(ROOT / "notebooks" / "12_beyond_python.md").cells:
        name, _, source = cell.source.partition("\n")
        if cell.cell_type == "code" and name.startswith(MAGIC):
            (folder / name.removeprefix(MAGIC)).write_text(source + "\n", encoding="utf-8")
    return folder


class Brightest(nn.Module):
    """The digit is the number of the row that is brightest: an answer that needs no training."""

    def forward(self, images):
        return images.float().mean(dim=(1, 3))[:, :10]


@pytest.fixture(scope="module")
def package(folder) -> Path:
    """`Brightest`, compiled ahead of time in a process of its own, and a file with images for 7, 0 and 3."""
    images = torch.zeros(3, 1, 28, 28, dtype=torch.uint8)
    for image, digit in zip(images, (7, 0, 3), strict=True):
        image[0, digit] = 200
    images.numpy().tofile(folder / "images.bin")
    batch = {0: torch.export.Dim("batch")}
    exported = torch.export.export(Brightest().eval(), (images[:2].clone(),), dynamic_shapes=(batch,))
    torch.export.save(exported, folder / "exported.pt2")
    program = "import sys, torch; program = torch.export.load(sys.argv[1]); "
    program += "torch._inductor.aoti_compile_and_package(program, package_path=sys.argv[2])"
    built(sys.executable, "-c", program, folder / "exported.pt2", folder / "compiled.pt2")
    return folder / "compiled.pt2"


def test_the_program_reads_digits_without_python(folder, package):
    need("cmake")
    program = folder / "build" / "read"
    built("cmake", "-S", folder, "-B", folder / "build", f"-DPython3_EXECUTABLE={sys.executable}")
    built("cmake", "--build", folder / "build")
    done = run(program, package, folder / "images.bin", env={})
    assert (done.returncode, done.stdout) == (0, "7 0 3\n"), done.stderr
    assert "libpython" not in run("ldd", program).stdout
    alone = run(program, env={})
    assert alone.returncode == 2 and "usage" in alone.stderr


def test_the_operator_works_on_any_layout_and_refuses_other_dtypes(folder):
    library = folder / "snap.so"
    options = ["-std=c++20", "-shared", "-fPIC", "-DTORCH_TARGET_VERSION=0x020b000000000000"]
    built("g++", *options, folder / "snap.cpp", *INCLUDE, *LINK, "-ltorch_cpu", "-o", library)
    torch.ops.load_library(library)
    snap = torch.ops.reader_cpp.snap
    x = torch.randn(4, 6)
    for layout in (x, x.T, x[:, ::2], x[:0], x[0, 0], torch.tensor([0.125, 0.375, -0.125])):
        assert torch.equal(snap(layout, 0.25), (layout / 0.25).round() * 0.25)
    for other in (x.double(), x.int()):
        with pytest.raises(RuntimeError, match="must be float32"):
            snap(other, 0.25)
    symbols = run("nm", "-DCu", library).stdout
    assert "at::" not in symbols and "c10::" not in symbols  # only the stable ABI: it outlives a version


def test_without_a_tool_the_answer_is_not_checked(monkeypatch):
    monkeypatch.setenv("CXX", "no-such-compiler")
    monkeypatch.setattr("torchcourse_labs.beyond_python.to_onnx.PACKAGES", ("no_such_package",))
    for name in ("stable_rows", "to_onnx"):
        result = evaluate(name, right(name)[0])
        assert result.outcome == "not checked" and " needs " in result.message
