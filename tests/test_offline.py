"""Without network and name service: on a plane, on a compute node, behind a firewall that drops everything.

tests/test_colab.py executes a lecture and a lab on such a machine; here are the command of the runner and quick things.
"""

import os
import subprocess
import sys

import pytest
from conftest import need
from environments import small_machine

from tools import course


@pytest.fixture
def offline(tmp_path) -> list[str]:
    """The beginning of a command that runs there."""
    need("bubblewrap")
    return small_machine(tmp_path)


def run(command: list[str], **environment: str) -> subprocess.CompletedProcess:
    """Run a command and return what it wrote, GLOO_SOCKET_IFNAME being left to the course."""
    inherited = {name: value for name, value in os.environ.items() if name != "GLOO_SOCKET_IFNAME"}
    path = os.pathsep.join([str(course.ROOT / "src"), str(course.ROOT)])
    inherited |= {"OMP_NUM_THREADS": "1", "PYTHONPATH": path}
    return subprocess.run(command, env=inherited | environment, cwd=course.ROOT, capture_output=True, text=True)


GROUPS = """
import os
from torchcourse import distributed
from labcheck import ranks
from torchcourse.commands.doctor import processes
with distributed.setup("gloo", alone=True) as me:
    print(me.world_size, "GLOO_SOCKET_IFNAME" in os.environ)

def another_group():
    import torch.distributed as dist
    group = dist.new_group()
    dist.barrier(group)
    return dist.get_world_size(group)

outcome = ranks.run(another_group)
print(outcome.values, [rank.errors for rank in outcome])
print(processes.gloo()[0])
"""


def test_process_groups_do_not_look_up_the_name_of_the_machine(offline):
    """A warning of gloo's would come from below Python, into the middle of a notebook."""
    done = run([*offline, sys.executable, "-c", GROUPS])
    assert done.stdout.splitlines()[-3:] == ["1 False", "[2, 2] ['', '']", "True"], done
    assert done.stderr == ""


# The command of `make run`; only its budgets, meant for a machine with nothing else to do, are as good as lifted.
RUNNER = "import sys; from tools import run; run.FAILS_AT = run.KILLED_AT = 30; sys.exit(run.main(sys.argv[1:]))"


@pytest.mark.slow
def test_the_runner_works(offline, tmp_path):
    """On the lecture that examines the machine. Two more notebooks, one with processes, are in tests/test_colab.py."""
    command = [sys.executable, "-c", RUNNER, "--chapters", "00", "--kinds", "lecture", "--out", str(tmp_path / "out")]
    done = run([*offline, *command])
    assert done.returncode == 0, done.stdout + done.stderr
