"""Cells of the lectures that do something else on a GPU, as far as a machine without one can tell.

Nothing here executes a whole notebook: single cells are run with a stand-in for what only a GPU has.
"""

import ast
import os
from pathlib import Path

import torch
import torch.nn.functional as F

import torchcourse
from tools import build, course
from torchcourse.lectures import migration


def run_cell(chapter: str, name: str, **names: object) -> dict[str, object]:
    """Run the code cell of a lecture that first defines or assigns `name`; returns its variables. names: from above."""
    (chosen,) = course.select([chapter])
    for cell in build.edition(chosen, "lecture").cells:
        if cell.cell_type == "code" and not cell.source.startswith("%"):
            kept = []
            for statement in ast.parse(cell.source).body:
                kept.append(statement)
                targets = getattr(statement, "targets", [])
                if getattr(statement, "name", None) == name or any(getattr(one, "id", None) == name for one in targets):
                    exec(compile(ast.Module(kept, []), f"{chapter}.{name}", "exec"), names)
                    return names
    raise AssertionError(f"chapter {chapter} has no cell with {name}")


def test_the_fp8_matmul_has_the_layout_that_cublas_wants(monkeypatch):
    """The first factor by rows, the second by columns: CUDA refuses anything else, a CPU may not mind."""
    strides = []

    def scaled_mm(a, b, *scales, output_dtype):
        strides.append((a.stride(), b.stride()))
        return torch.zeros(len(a), b.shape[1])

    monkeypatch.setattr(F, "scaled_mm", scaled_mm)
    run_cell("07", "fp8_matmul", torch=torch, F=F)["fp8_matmul"](torch.randn(64, 32), torch.randn(32, 16))
    assert strides == [((32, 1), (1, 32))]


def test_room_on_a_gpu_counts_from_what_is_reserved(monkeypatch):
    """CUDA compares the limit with whole blocks. Counted from what tensors take, there would be no room for a block."""
    fractions = []
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: None)
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda *where: 700)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda *where: (500, 1000))
    monkeypatch.setattr(torch.cuda, "set_per_process_memory_fraction", fractions.append)
    migration.leave_room(torch.device("cuda"), 50)
    migration.leave_room(torch.device("cuda"), None)
    assert fractions == [0.75, 1.0]


def test_a_script_finds_what_the_notebook_finds(monkeypatch):
    """On a machine where packages were brought along, only PYTHONPATH leads to them."""
    earlier = ["/a/place", "/another"]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(earlier))
    found = run_cell("04", "environment", os=os, Path=Path, torchcourse=torchcourse)["environment"]["PYTHONPATH"]
    assert found.split(os.pathsep) == [str(Path(torchcourse.__file__).parents[1]), *earlier]
