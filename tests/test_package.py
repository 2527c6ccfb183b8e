"""The package as a whole: quick to import, built in floors, nothing out of date, readable with and without Jupyter."""

import ast
import re
import subprocess
import sys

import matplotlib.pyplot as plt
import pytest
import torch

from tools.course import FLOORS, ROOT
from torchcourse import device, plots, timing
from torchcourse.record import record

SOURCE = ROOT / "src" / "torchcourse"
OUTDATED = [
    r"torch\.cuda\.amp",
    r"torch\.cuda\.is_available",  # torch.accelerator asks for every kind of accelerator
    r"weights_only\s*=\s*False",
    r"torch\.jit\.",
    r"torch\.autograd\.Variable",
    r"np\.random\.seed",
]


def test_import_adds_little_to_torch():
    """Counted in modules, not in seconds: matplotlib, torchvision or IPython would be what makes it slow."""
    code = "import torch, sys; before = set(sys.modules); import torchcourse; print(*sorted(set(sys.modules) - before))"
    new = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert all(name.startswith("torchcourse") for name in new), new


def modules():
    return sorted(path for path in SOURCE.rglob("*.py"))


def room(path):
    """The module, or the folder, right under torchcourse."""
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(SOURCE)))
def test_nothing_imports_upward(path):
    if room(path) == "__init__":
        return  # the door of the house: `setup` opens rooms on every floor, when it is called
    floors = [set(rooms.split()) for rooms in FLOORS.values()]
    floor = next((i for i, rooms in enumerate(floors) if room(path) in rooms), None)
    assert floor is not None, f"{path.name}: say in FLOORS of tools/course.py on which floor it stands"
    above = set().union(*floors[floor + 1 :])
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("torchcourse"):
            names = (
                {alias.name for alias in node.names} if node.module == "torchcourse" else {node.module.split(".")[1]}
            )
            assert not names & above, f"{path.name} imports {names & above} from a floor above"


def sources():
    chapters = [*ROOT.glob("notebooks/*.md"), *ROOT.glob("solutions/*.md"), *ROOT.glob("slides/*.md")]
    return modules() + sorted(chapters)


@pytest.mark.parametrize("path", sources(), ids=lambda path: str(path.relative_to(ROOT)))
def test_nothing_outdated_is_used(path):
    """Outdated calls may be talked about in prose, but not stand in code (unless the line says `# outdated`)."""
    text = path.read_text()
    code = (
        text
        if path.suffix == ".py"
        else "\n".join(re.findall(r"^```(?:\{code-cell\}|python).*?^```", text, re.M | re.S))
    )
    for line in code.splitlines():
        for pattern in OUTDATED:
            assert not re.search(pattern, line) or "# outdated" in line, f"{path.name}: {line.strip()}"


def test_public_functions_are_documented_and_typed():
    for path in modules():
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, (ast.FunctionDef, ast.ClassDef)) and not node.name.startswith("_"):
                if room(path) == "checks" and path.stem not in ("engine", "show", "__init__"):
                    continue  # an exercise is described by its decorator
                assert ast.get_docstring(node), f"{path.name}: {node.name} has no docstring"
                if isinstance(node, ast.FunctionDef):
                    missing = [a.arg for a in node.args.args + node.args.kwonlyargs if a.annotation is None]
                    assert not missing and node.returns is not None, f"{path.name}: types of {node.name} {missing}"


def test_best_device_works():
    assert (torch.ones(2, device=device.best()) + 1).sum().item() == 4
    assert device.best().type in device.describe()
    assert device.describe("cpu").startswith("cpu (")


def test_times_are_ordered_and_counted():
    calls = []
    times = timing.seconds(lambda: calls.append(1), repeats=5, warmup=3)
    assert len(calls) == 8 and 0 <= times.low <= times.median <= times.high


def test_record_prints_outside_jupyter(capsys):
    record(test_accuracy=torch.tensor(0.987612), epochs=3)
    assert capsys.readouterr().out == "recorded: test accuracy 0.9876, epochs 3\n"
    with pytest.raises((TypeError, ValueError)):
        record(words="many")


def test_pictures_are_small_and_closed(monkeypatch):
    monkeypatch.setattr(plt, "show", lambda: None)
    plots.use_style()
    figure = plots.image_grid(torch.randint(0, 256, (12, 3, 32, 32), dtype=torch.uint8), titles=range(12))
    assert plots._small_png(figure)[:8] == b"\x89PNG\r\n\x1a\n" and len(plots._small_png(figure)) < 100_000
    plots.show("Noise.")
    assert plt.get_fignums() == []


@pytest.mark.parametrize("images", [torch.rand(3, 1, 4, 5), torch.rand(9, 3, 4, 4), torch.zeros(1, 1, 2, 2).byte()])
def test_image_grid_takes_grey_and_color(images):
    figure = plots.image_grid(images)
    assert sum(bool(ax.images) for ax in figure.axes) == len(images)
    plt.close(figure)
