"""The login node of a notebook: a practice cluster where one can run, elsewhere what one printed when it was recorded.

    site = login_node.LoginNode("11_cluster")
    site("sinfo")                # runs it and prints what it says

Colab, a laptop with macOS and a hub's sandbox cannot start a Slurm. There `site` says so once, and prints what the same
commands printed on a practice cluster. Whether a line was run or replayed can always be told: `site.real`.
"""

import datetime
import json
import os
import subprocess
import sys
from collections import Counter
from importlib import resources
from pathlib import Path

from torchcourse.cluster import practice
from torchcourse.errors import CourseError

RECORD = "TORCHCOURSE_RECORD"  # a folder: where the build of the course lets recordings be written


class LoginNode:
    """Runs shell commands on the login node of a practice cluster and prints what they print.

    chapter: whose recording to use where no cluster can run. cluster: options of `practice.Cluster`.
    real: whether commands run; otherwise they are replayed. said: what the last command printed.
    """

    def __init__(self, chapter: str, **cluster: int):
        self._chapter, self._seen, self.said = chapter, Counter(), ""
        try:
            self._cluster = practice.Cluster(**cluster)
        except CourseError as reason:
            recording = json.loads(_file(chapter).read_text())
            self.real, self._recorded = False, recording["commands"]
            print(f"{reason}\nInstead you see what these commands printed on one, on {recording['date']}.")
        else:
            self.real, self._recorded = True, []
            print(f"A Slurm with the nodes {' and '.join(self._cluster.nodes)} is running on this machine.")

    def __call__(self, command: str, seconds: float = 300) -> None:
        """Run a command of the shell, in this notebook's folder, and print its output and errors.

        seconds: the longest that it may take. Raises CourseError if it takes longer.
        """
        if self.real:
            pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "stdin": subprocess.DEVNULL}
            try:
                said = self._cluster.run(
                    command, **pipes, text=True, errors="replace", timeout=seconds, env=_environment()
                ).stdout
            except subprocess.TimeoutExpired:
                raise CourseError(
                    f"`{command}` did not end within {seconds:.0f} s. `squeue` says what waits."
                ) from None
            self._record(command, said)
        else:
            said = self._replay(command)
        self.said = said
        print(said, end="")

    def down(self, node: str) -> None:
        """Pull the plug of a node."""
        if self.real:
            self._cluster.down(node)

    def up(self, node: str) -> None:
        """Start a node again."""
        if self.real:
            self._cluster.up(node)

    def close(self) -> None:
        """End the cluster. It also ends with the kernel of the notebook."""
        if self.real:
            self._cluster.close()

    def _replay(self, command: str) -> str:
        """What this command printed, the first time, the second time, …"""
        said = [said for recorded, said in self._recorded if recorded == command]
        if not said:
            return "This command is not in the recording. On a machine with Slurm it would run.\n"
        turn = min(self._seen[command], len(said) - 1)
        self._seen[command] += 1
        return said[turn]

    def _record(self, command: str, said: str) -> None:
        self._recorded.append([command, said])
        if folder := os.environ.get(RECORD):
            recording = {"date": datetime.date.today().isoformat(), "commands": self._recorded}
            Path(folder, f"{self._chapter}.json").write_text(json.dumps(recording, indent=1, ensure_ascii=False) + "\n")


def _environment() -> dict[str, str]:
    """This notebook's Python, torchrun and package come first, also where no environment is activated."""
    first = {"PATH": str(Path(sys.executable).parent), "PYTHONPATH": str(Path(__file__).parents[2])}
    joined = {name: os.pathsep.join(filter(None, [folder, os.environ.get(name)])) for name, folder in first.items()}
    return os.environ | joined


def _file(chapter: str) -> Path:
    return Path(str(resources.files("torchcourse.cluster").joinpath("recordings", f"{chapter}.json")))
