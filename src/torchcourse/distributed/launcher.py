"""Starts the ranks of a cell: PyTorch's own elastic launcher, set up as `torchrun --standalone` sets it up.

Called as `launcher.py JOB`. Only where the ranks come from differs: torchrun starts each of them as a new Python, here
they are forks of a process that has imported PyTorch. macOS's own libraries do not survive a fork: there they are new.
"""

import json
import sys
import uuid
from pathlib import Path

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).parents[2])  # where `torchcourse` is

from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
from torch.distributed.launcher import LaunchConfig, elastic_launch

from torchcourse.distributed import rank


def launch(job_file: str) -> int:
    """Run a job on its ranks, and again after a failure, as often as it allows. Returns the exit code."""
    job = json.loads(Path(job_file).read_text(encoding="utf-8"))
    config = LaunchConfig(
        min_nodes=1,
        max_nodes=1,
        nproc_per_node=job["ranks"],
        max_restarts=job["max_restarts"],
        run_id=str(uuid.uuid4()),
        rdzv_backend="c10d",
        rdzv_endpoint="localhost:0",
        local_addr="127.0.0.1",  # the machine's own name may lead nowhere
        logs_specs=DefaultLogsSpecs(log_dir=f"{job['scratch']}/logs"),
        start_method="fork" if sys.platform == "linux" else "spawn",
    )
    try:
        elastic_launch(config, rank.run)(job_file)
    except ChildFailedError as error:
        codes = {str(number): failure.exitcode for number, failure in error.failures.items()}
        rank.note(f"{job['scratch']}/exit_codes.json", **codes)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(launch(sys.argv[1]))
