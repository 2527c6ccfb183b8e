"""A practice cluster on this machine: `make cluster` opens a shell on its login node.

python -m tools.cluster                                two nodes, a shell; everything is gone when you leave it
python -m tools.cluster --gpus 4                       nodes that say they have four GPUs each
python -m tools.cluster -- sbatch --wait job.sh        one command on the login node, and its exit status
"""

import argparse
import os
import sys
from pathlib import Path

from torchcourse.cluster import practice
from torchcourse.errors import CourseError

WELCOME = """\
A Slurm with the nodes {nodes}, on this machine. You are on its login node, in your own folder. Try
    sinfo                                            the nodes and what they are doing
    srun --nodes=2 --ntasks-per-node=1 hostname      one command on each
    sbatch job.sh, squeue, scancel                   jobs
Leave with exit, and the cluster is gone.
"""


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="make cluster", description="A practice cluster on this machine.")
    parser.add_argument("--nodes", type=int, default=2, help="compute nodes (2)")
    parser.add_argument("--gpus", type=int, default=0, help="GPUs that each node says it has, for practice (0)")
    parser.add_argument("command", nargs="*", help="run this on the login node instead of a shell")
    options = parser.parse_args(arguments)
    # The environment of this command is the one that jobs find, as on clusters with a shared home.
    os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    try:
        with practice.Cluster(options.nodes, gpus=options.gpus) as site:
            if options.command:
                return site.run(options.command).returncode
            print(WELCOME.format(nodes=" and ".join(site.nodes)))
            return practice.shell(site)
    except CourseError as error:
        raise SystemExit(str(error)) from None


if __name__ == "__main__":
    sys.exit(main())
