"""A process in which one library trains when it is told to: `python -m tools.bench.worker NAME THREADS`.

It reads one task a line from standard input, as JSON, and answers with one line of JSON: {"images_per_s": ...} or
{"error": "..."}. So each library is imported once, stays warm, and can take turns with the others.
"""

import contextlib
import importlib.metadata
import json
import os
import subprocess
import sys
import threading
import traceback
import warnings
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from tools.bench.quiet import sentence

if TYPE_CHECKING:
    from tools.bench.contestants import Task

ROOT = Path(__file__).resolve().parents[2]
LOGS = ROOT / "build" / "bench"
PATIENCE = 300  # seconds; then the library hangs
PACKAGES = {"ours": "torchcourse", "loop": "torch"}  # the others are called like the package


class Worker:
    """The other end: starts such a process and talks to it."""

    def __init__(self, name: str, python: str, threads: int):
        LOGS.mkdir(parents=True, exist_ok=True)
        self.name, self.log = name, LOGS / f"{name}.log"
        # Everybody on the processor: some libraries take a GPU wherever they see one.
        environment = {"KERAS_BACKEND": "torch", "OMP_NUM_THREADS": str(threads), "CUDA_VISIBLE_DEVICES": ""}
        with self.log.open("w") as log:
            self.process = subprocess.Popen(
                [python, "-m", "tools.bench.worker", name, str(threads)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                cwd=ROOT,
                env=os.environ | environment,
            )
        try:
            self.version = self._answer()["version"]
        except RuntimeError:
            self.close()
            raise

    def train(self, task: "Task") -> float:
        """Images per second. Raises RuntimeError with one sentence when the library could not."""
        try:
            self.process.stdin.write(json.dumps(asdict(task)) + "\n")
            self.process.stdin.flush()
        except OSError:
            raise RuntimeError(f"its process has ended, see {self.log.name} in build/bench") from None
        return self._answer()["images_per_s"]

    def _answer(self) -> dict:
        guard = threading.Timer(PATIENCE, self.process.kill)
        guard.start()
        line = self.process.stdout.readline()
        guard.cancel()
        if not line:
            raise RuntimeError(f"its process ended or hung, see {self.log.name} in build/bench")
        answer = json.loads(line)
        if "error" in answer:
            raise RuntimeError(answer["error"])
        return answer

    def close(self) -> None:
        """End the process."""
        with contextlib.suppress(OSError):  # its process may be gone
            self.process.stdin.close()
        self.process.stdout.close()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def main(name: str, threads: int) -> None:
    """Answer tasks until the input ends."""
    # Answers go out alone: whatever a library prints goes to the log with the errors.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    warnings.simplefilter("ignore")

    def reply(**content) -> None:
        answers.write(json.dumps(content) + "\n")
        answers.flush()

    try:
        version = importlib.metadata.version(PACKAGES.get(name, name))  # before the imports, which take seconds
        import torch

        from tools.bench import contestants

        torch.set_num_threads(threads)
        reply(version=version)
    except Exception as error:
        traceback.print_exc()
        reply(error=sentence(error))
        return
    for line in sys.stdin:
        try:
            reply(images_per_s=contestants.run(name, contestants.Task(**json.loads(line))))
        except Exception as error:  # the table says so; the worker stays
            traceback.print_exc()
            reply(error=sentence(error))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
