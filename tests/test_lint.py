"""ruff over everything, the built notebooks included; and nothing in the tree that belongs to one machine."""

import re
import subprocess
import sys

import nbformat

from tools import run
from tools.course import ROOT

NOTEBOOKS = sorted(path for folder in ("notebooks", "solutions", "labs") for path in (ROOT / folder).glob("*.ipynb"))


def test_ruff_is_content():
    for words in ("check", "format --check"):
        command = [sys.executable, "-m", "ruff", *words.split(), "."]
        assert subprocess.run(command, cwd=ROOT).returncode == 0, "its own words are above"


def test_notebooks_are_fit_for_the_shelf():
    """Small, without errors and warnings, their pictures described, nothing of the machine that executed them."""
    home = re.compile(r"/(home|root|Users|work|tmp)/\w")
    for path in NOTEBOOKS:
        assert path.stat().st_size < run.LARGEST, f"{path} has {path.stat().st_size} bytes"
        for cell in nbformat.read(path, as_version=4).cells:
            where = f"{path.parent.name}/{path.name}, cell {cell.id}"
            for output in cell.get("outputs", []):
                assert output.output_type != "error" and output.get("name") != "stderr", f"{where}: {output}"
                data = dict(output.get("data", {}))
                picture = data.pop("image/png", None)
                text = output.get("text", "") + "".join(map(str, data.values()))
                assert not home.search(text), f"{where}: a path of the machine: {text[:300]}"
                if picture:
                    described = output.metadata.get("image/png", {}).get("alt", "")
                    assert len(described) > 20, f"{where}: end it with plots.show(alt)"
                    assert len(picture) * 3 / 4 < 100_000, f"{where}: picture over 100 KB"
