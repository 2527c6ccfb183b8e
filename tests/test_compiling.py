"""The counting backend: what it counts, that it computes the same, and that it leaves nothing behind."""

import logging
import sysconfig

import pytest
import torch

from torchcourse.lectures import compiling
from torchcourse.lectures.compiling import counting, first_break


def straight(x):
    return (x * 2).relu() + 1


def broken(x):
    y = x * 2
    if y.sum() > 0:
        y = y + 1
    return y * y.mean().item()


def run(function, *inputs, **options):
    with counting() as backend:
        compiled = torch.compile(function, backend=backend, **options)
        results = [compiled(x) for x in inputs]
    return results, len(backend.graphs), backend.recompilations


def test_code_in_one_piece_gives_one_graph_with_the_same_values_and_gradients():
    x = torch.randn(5, requires_grad=True)
    (y,), graphs, again = run(straight, x)
    assert (graphs, again) == (1, 0) and torch.equal(y, straight(x))
    assert torch.equal(*(torch.autograd.grad(result.sum(), x)[0] for result in (y, straight(x))))


def test_each_piece_of_broken_code_has_a_graph_and_its_place_is_known():
    with counting() as backend:
        y = torch.compile(broken, backend=backend)(torch.ones(3))
    assert len(backend.graphs) == 3 and backend.recompilations == 0 and torch.equal(y, broken(torch.ones(3)))
    assert [line for *_, line in backend.breaks] == ["if y.sum() > 0:", "return y * y.mean().item()"]
    assert {file for file, *_ in backend.breaks} == {__file__}


def test_a_second_shape_compiles_once_more_and_a_third_does_not(caplog):
    sizes = [torch.randn(n, 2) for n in range(3, 15)]
    assert run(straight, *sizes[:4])[1:] == (2, 1)
    assert run(straight, *sizes[:4], dynamic=True)[1:] == (1, 0)
    assert run(straight, *sizes, dynamic=False)[1:] == (8, 7), "there is a limit"
    assert not [each for each in caplog.records if each.levelno >= logging.WARNING], "quiet unless asked for"


def test_it_says_why_something_was_compiled_again():
    def mirrored(x, mirror):
        return -x if mirror else x + 1

    with counting() as backend:
        compiled = torch.compile(mirrored, backend=backend)
        compiled(torch.ones(4), False)
        assert backend.reasons == []
        compiled(torch.ones(4), True)
        compiled(torch.ones(5), True)
    assert "mirror" in backend.reasons[0] and "size mismatch" in backend.reasons[1]


def test_nothing_is_left_behind():
    level = logging.getLogger("torch._dynamo").level
    with pytest.raises(ZeroDivisionError), counting():
        raise ZeroDivisionError
    assert logging.getLogger("torch._dynamo").level == level
    assert run(straight, torch.ones(2))[1] == run(straight, torch.ones(2))[1] == 1, "nothing comes from a cache"
    with torch.compiler.set_stance("force_eager"):
        assert run(straight, torch.ones(2))[1] == 1, "it counts where compilation is switched off"
        with counting() as backend:
            pass
        torch.compile(straight, backend=backend)(torch.ones(2))
        assert not backend.graphs, "the stance is as it was"


def test_the_first_break_is_named_with_its_line():
    found = first_break(broken, torch.ones(3))
    assert found.line.startswith("if y.sum() > 0:") and found.file == __file__ and found.number > 1 and found.reason
    assert first_break(straight, torch.ones(3)) is None
    run(broken, torch.ones(3))
    assert first_break(broken, torch.ones(3)), "also of a function that was compiled before"


# ---------------------------------------- what a machine lacks


def test_what_a_machine_lacks_comes_with_what_to_install(tmp_path, monkeypatch):
    """A machine with a compiler and Python.h, as far as anyone looks; then without."""
    compiler, header = tmp_path / "some++", tmp_path / "Python.h"
    monkeypatch.setenv("CXX", str(compiler))
    monkeypatch.setattr(sysconfig, "get_path", lambda name: str(tmp_path))
    missing = compiling.missing()
    assert "some++ and Python's header" in missing and "apt install g++ python3." in missing
    header.touch()
    assert "some++" in compiling.missing() and "apt install g++`" in compiling.missing()
    compiler.touch(0o755)
    assert compiling.missing() is None
    monkeypatch.delenv("CXX")  # then the compiler is the usual one of the system
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("sys.platform", "linux")
    assert "compiler g++" in compiling.missing()
    (tmp_path / "g++").touch(0o755)
    header.unlink()
    assert "lacks Python's header file Python.h" in compiling.missing() and "-dev`" in compiling.missing()


def test_beside_a_gpu_triton_is_asked_as_inductor_will(monkeypatch):
    """On such a machine, Inductor needs Triton's driver even for the CPU, and fails where it doesn't work."""
    monkeypatch.setattr(compiling.device, "best", lambda: torch.device("cuda"))
    monkeypatch.setattr(torch.version, "cuda", "13.0")

    def broken(name):
        raise AssertionError("libcuda.so cannot found!\nPlease make sure GPU is set up")

    monkeypatch.setattr(compiling.importlib, "import_module", broken)
    assert compiling._triton_lacks().endswith("does not work on this machine: libcuda.so cannot found!")
    monkeypatch.setattr(torch.version, "cuda", None)
    assert compiling._triton_lacks() is None
