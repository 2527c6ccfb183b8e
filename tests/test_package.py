"""The package as a whole: quick to import, built in layers, nothing out of date, readable with and without Jupyter."""

import ast
import functools
import os
import re
import subprocess
import sys

import matplotlib.pyplot as plt
import pytest
import torch

from tools import size
from tools.course import LAYERS, ROOT
from torchcourse import plots, timing
from torchcourse.record import record

SOURCE = ROOT / "src" / "torchcourse"
OUTDATED = re.compile(
    r"torch\.cuda\.(amp|is_available)"  # torch.accelerator asks for every kind of accelerator
    r"|weights_only\s*=\s*False|torch\.jit\.|torch\.autograd\.Variable|np\.random\.seed"
)


def test_import_adds_little_to_torch():
    """Counted in modules, not in seconds: matplotlib, torchvision or IPython would be what makes it slow."""
    code = "import torch, sys; before = set(sys.modules); import torchcourse; print(*sorted(set(sys.modules) - before))"
    new = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert all(name.startswith("torchcourse") for name in new), new


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere PyTorch brings another OpenMP, which shows other words")
def test_threads_sleep_while_they_wait():
    """OpenMP itself tells how often a waiting thread asks before it falls asleep. Imported after PyTorch, which is too
    late, the package changes nothing, for no child process either. There are as many threads as without it."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("OMP_", "GOMP_", "KMP_"))}
    threads = set()
    for modules, chosen, policy, spins in (
        ("torchcourse, torch", {}, "passive", "0"),
        ("torchcourse, torch", {"OMP_WAIT_POLICY": "active"}, "active", "30000000000"),
        ("torch, torchcourse", {}, "None", "300000"),
    ):
        code = f"import os, {modules}; print(os.environ.get('OMP_WAIT_POLICY'), torch.get_num_threads())"
        own = environment | {"OMP_DISPLAY_ENV": "verbose"} | chosen
        done = subprocess.run([sys.executable, "-c", code], env=own, capture_output=True, text=True, check=True)
        assert re.findall(r"GOMP_SPINCOUNT = '(\d+)'", done.stderr) == [spins]
        said, count = done.stdout.split()
        assert said == policy
        threads.add(count)
    assert len(threads) == 1


IMPORTING = """
import gc
from torchcourse import importing
importing.load("torch")
kept = gc.get_freeze_count()
mine = [[] for _ in range(1000)]
importing.load("torch")
print(gc.isenabled(), kept > 100_000, gc.get_freeze_count() <= kept)
"""


def test_the_collector_leaves_alone_what_was_imported_and_nothing_of_a_user():
    done = subprocess.run([sys.executable, "-c", IMPORTING], capture_output=True, text=True)
    assert done.stdout.split() == ["True"] * 3, done
    assert done.stderr == "", "silent at the end, too"


PACKAGES = ("torchcourse", "labcheck", "torchcourse_labs")  # from the bottom up


def modules():
    return sorted(path for package in PACKAGES for path in (SOURCE.parent / package).rglob("*.py"))


def name_of(path):
    """The dotted name of a module."""
    return ".".join(path.relative_to(SOURCE.parent).with_suffix("").parts).removesuffix(".__init__")


@functools.cache
def imports() -> dict[str, set[str]]:
    """Which of our modules each of them imports, wherever the statement is: at the top or in a function."""
    names = {name_of(path): path for path in modules()}
    found = {}
    for name, path in names.items():
        found[name] = used = set()
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                used |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and not node.level:
                each = {f"{node.module}.{alias.name}" for alias in node.names}
                used |= each if each <= names.keys() else {node.module, *each}
        found[name] = used & names.keys() - {name}
    return found


def level(name: str) -> tuple[int, int]:
    """The package of a module, and in `torchcourse` its layer. The package itself is above its modules."""
    package, _, rest = name.partition(".")
    layers = [set(names.split()) for names in LAYERS.values()]
    top = rest.partition(".")[0]
    if package == "torchcourse" and top:
        assert any(top in layer for layer in layers), f"{name}: say in LAYERS of tools/course.py in which layer it is"
    below = next((i for i, layer in enumerate(layers) if top in layer), len(layers))
    return PACKAGES.index(package), below if package == "torchcourse" else 0


def test_nothing_imports_upward_and_there_is_no_circle():
    """Layer by layer, what imports nothing that is left is taken away: in the end nothing is left."""
    for name, used in imports().items():
        above = {other for other in used if level(other) > level(name)}
        assert not above - {"torchcourse"}, f"{name} imports {above} from a layer above"
    left = {name: set(used) for name, used in imports().items()}
    while ready := {name for name, used in left.items() if not used & left.keys()}:
        left = {name: used for name, used in left.items() if name not in ready}
    assert not left


def test_nothing_outdated_is_used():
    """Prose may talk about outdated calls; code uses none, unless the line says `# outdated` or `# on purpose`."""
    pages = (page for kind in ("notebooks", "solutions", "slides") for page in ROOT.glob(f"{kind}/*.md"))
    for path in (*modules(), *pages):
        text = path.read_text()
        cells = re.findall(r"^```(?:\{code-cell\}|python).*?^```", text, re.M | re.S)
        for line in (text if path.suffix == ".py" else "\n".join(cells)).splitlines():
            meant = "# outdated" in line or "# on purpose" in line
            assert meant or not OUTDATED.search(line), f"{path.name}: {line.strip()}"


def test_public_functions_are_documented_and_typed():
    for path in modules():
        if "torchcourse_labs" in path.parts:
            continue  # the Exercise in each file describes it
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, (ast.FunctionDef, ast.ClassDef)) and not node.name.startswith("_"):
                assert ast.get_docstring(node), f"{path.name}: {node.name} has no docstring"
                if isinstance(node, ast.FunctionDef):
                    missing = [a.arg for a in node.args.args + node.args.kwonlyargs if a.annotation is None]
                    assert not missing and node.returns is not None, f"{path.name}: types of {node.name} {missing}"


def test_no_part_is_larger_than_its_limit(capsys):
    assert size.main() == 0, capsys.readouterr().out


def test_times_are_ordered_and_counted():
    calls = []
    times = timing.seconds(lambda: calls.append(1), repeats=5, warmup=3)
    assert len(calls) == 8 and 0 <= times.low <= times.median <= times.high


def test_record_prints_outside_jupyter(capsys):
    record(test_accuracy=torch.tensor(0.987612), epochs=3)
    assert capsys.readouterr().out == "recorded: test accuracy 0.9876, epochs 3\n"


def test_pictures_are_small_and_closed(monkeypatch):
    monkeypatch.setattr(plt, "show", lambda: None)
    plots.use_style()
    png = plots._small_png(plots.image_grid(torch.randint(0, 256, (12, 3, 32, 32)).byte(), titles=range(12)))
    assert png[:8] == b"\x89PNG\r\n\x1a\n" and len(png) < 100_000
    plots.show("Noise.")
    for images in (torch.rand(3, 1, 4, 5), torch.rand(9, 3, 4, 4), torch.zeros(1, 1, 2, 2).byte()):
        figure = plots.image_grid(images)
        assert sum(bool(ax.images) for ax in figure.axes) == len(images)
        plt.close()
    assert plt.get_fignums() == []
