"""The C++ program of chapter 12, built with CMake and run outside the notebook.

The lecture itself, which `make run` executes, builds it and the operator with g++.

The sources are those of the lecture's `%%writefile` cells. Without a compiler the tests are skipped with a sentence,
and with CI=true they fail.
"""

import subprocess
import sys

import jupytext
import pytest
import torch
from conftest import need
from support.answers import right
from torch import nn

from labcheck import evaluate
from tools.course import ROOT

MAGIC = "%%writefile "
COMPILE = """
import sys, torch
program = torch.export.load(sys.argv[1])
torch._inductor.aoti_compile_and_package(program, package_path=sys.argv[2])
"""


def run(*command: object, **options) -> subprocess.CompletedProcess:
    return subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=600, **options)


def built(*command: object) -> None:
    done = run(*command)
    assert done.returncode == 0, (done.stdout + done.stderr)[-3000:]


class Brightest(nn.Module):
    """The digit is the number of the row that is brightest: an answer that needs no training."""

    def forward(self, images):
        return images.float().mean(dim=(1, 3))[:, :10]


@pytest.mark.weekly
def test_the_program_reads_digits_without_python(tmp_path):
    """In a file with images for 7, 0 and 3, by a network that was compiled ahead of time in a process of its own."""
    need("compiler", "cmake")
    for cell in jupytext.read(ROOT / "notebooks" / "12_beyond_python.md").cells:
        name, _, source = cell.source.partition("\n")
        if cell.cell_type == "code" and name.startswith(MAGIC):
            (tmp_path / name.removeprefix(MAGIC)).write_text(source + "\n", encoding="utf-8")
    images = torch.zeros(3, 1, 28, 28, dtype=torch.uint8)
    for image, digit in zip(images, (7, 0, 3), strict=True):
        image[0, digit] = 200
    images.numpy().tofile(tmp_path / "images.bin")
    batch = {0: torch.export.Dim("batch")}
    exported = torch.export.export(Brightest().eval(), (images[:2].clone(),), dynamic_shapes=(batch,))
    torch.export.save(exported, tmp_path / "exported.pt2")
    built(sys.executable, "-c", COMPILE, tmp_path / "exported.pt2", tmp_path / "compiled.pt2")
    built("cmake", "-S", tmp_path, "-B", tmp_path / "build", f"-DPython3_EXECUTABLE={sys.executable}")
    built("cmake", "--build", tmp_path / "build")
    program = tmp_path / "build" / "read"
    done = run(program, tmp_path / "compiled.pt2", tmp_path / "images.bin", env={})
    assert (done.returncode, done.stdout) == (0, "7 0 3\n"), done.stderr
    assert "libpython" not in run("ldd", program).stdout
    alone = run(program, env={})
    assert alone.returncode == 2 and "usage" in alone.stderr


def test_without_a_package_the_answer_is_not_checked(monkeypatch):
    monkeypatch.setattr("torchcourse_labs.beyond_python.to_onnx.find_spec", lambda name: None)
    result = evaluate("to_onnx", right("to_onnx")[0])
    assert result.outcome == "not checked" and " needs " in result.message
