"""ruff over everything, the built notebooks included; and nothing in the tree that belongs to one machine."""

import re
import subprocess
import sys

import nbformat
import pytest

from tools import run
from tools.course import ROOT

TRACKED = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True).stdout.split("\n")
NOTEBOOKS = sorted(path for folder in ("notebooks", "solutions", "labs") for path in (ROOT / folder).glob("*.ipynb"))


@pytest.mark.parametrize("words", [["check"], ["format", "--check"]], ids=["check", "format"])
def test_ruff_is_content(words):
    done = subprocess.run([sys.executable, "-m", "ruff", *words, "."], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-5000:]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_notebook_is_fit_for_the_shelf(path):
    """Small, without errors and warnings, its pictures described, nothing of the machine that executed it."""
    assert path.stat().st_size < run.LARGEST, f"{path.stat().st_size} bytes"
    home = re.compile(r"/(home|root|Users|work|tmp)/\w")
    for cell in nbformat.read(path, as_version=4).cells:
        for output in cell.get("outputs", []):
            assert output.output_type != "error", output.get("evalue")
            assert output.get("name") != "stderr", output.get("text")
            text = output.get("text", "") + "".join(
                str(v) for k, v in output.get("data", {}).items() if k != "image/png"
            )
            assert not home.search(text), f"a path of the machine: {text[:300]}"
            if "image/png" in output.get("data", {}):
                described = output.metadata.get("image/png", {}).get("alt", "")
                assert len(described) > 20, f"cell {cell.id}: end it with plots.show(alt)"
                assert len(output.data["image/png"]) * 3 / 4 < 100_000, f"cell {cell.id}: picture over 100 KB"
