"""The files that the solution of the lab writes: their answers are right, and wrong ones are made from them."""

import importlib.util
import sys
import tempfile
from pathlib import Path
from types import ModuleType

from tools.course import ROOT

FOLDER = tempfile.TemporaryDirectory()  # goes with the process


def written(file: str) -> ModuleType:
    """project/FILE.py as a module."""
    lab = (ROOT / "solutions" / "13_capstone.md").read_text(encoding="utf-8")
    code = lab.partition(f"%%writefile project/{file}.py\n")[2].partition("```")[0]
    path = Path(FOLDER.name, f"written_{file}.py")
    path.write_text(code.replace("from project.images import NAME\n", ""), encoding="utf-8")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = sys.modules[path.stem] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
