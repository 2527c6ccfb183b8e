"""Lecture 11 where no Slurm can run: it shows what the practice cluster printed when the lecture was built."""

import ast
import json
from pathlib import Path

import nbformat

from tools.course import ROOT
from torchcourse.cluster import login_node, practice


def test_every_command_of_the_lecture_is_recorded():
    """What lecture 11 types on its login node, as far as it is written out."""
    notebook = nbformat.read(ROOT / "notebooks" / "11_cluster.ipynb", 4)
    cells = [cell.source for cell in notebook.cells if cell.cell_type == "code" and "site(" in cell.source]
    calls = [node for cell in cells for node in ast.walk(ast.parse(cell)) if isinstance(node, ast.Call)]
    asked = [call.args[0] for call in calls if isinstance(call.func, ast.Name) and call.func.id == "site"]
    commands = {each.value for each in asked if isinstance(each, ast.Constant)}
    recorded = json.loads((Path(login_node.__file__).parent / "recordings" / "11_cluster.json").read_text())
    missing = commands - {command for command, _ in recorded["commands"]}
    assert not missing, f"`python -m tools.build --force 11` on a machine with Slurm records them: {missing}"


def test_a_replay_prints_what_was_said_and_a_command_of_your_own_gets_a_sentence(monkeypatch, capsys):
    monkeypatch.setattr(practice, "why_not", lambda: "No cluster can run here.")
    replayed = login_node.LoginNode("11_cluster")
    assert capsys.readouterr().out.startswith("No cluster can run here.\nInstead you see what these commands printed")
    assert not replayed.real
    for command, said in (("sinfo", "PARTITION"), ("sbatch mine.sh", "not in the recording")):
        replayed(command)
        assert said in capsys.readouterr().out
    replayed.down("n1"), replayed.up("n1"), replayed.close()  # and nothing breaks
