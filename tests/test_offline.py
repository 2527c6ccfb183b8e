"""Without network and name service: on a plane, on a compute node, behind a firewall that drops everything.

tests/test_colab.py executes a lecture and a lab on such a machine.
"""

import os
import subprocess
import sys

from conftest import need
from environments import small_machine

from tools import course

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


def test_process_groups_do_not_look_up_the_name_of_the_machine(tmp_path):
    """A warning of gloo's would come from below Python, into the middle of a notebook."""
    need("bubblewrap")
    inherited = {name: value for name, value in os.environ.items() if name != "GLOO_SOCKET_IFNAME"}
    inherited |= {"OMP_NUM_THREADS": "1", "PYTHONPATH": f"{course.ROOT / 'src'}{os.pathsep}{course.ROOT}"}
    command = [*small_machine(tmp_path), sys.executable, "-c", GROUPS]
    done = subprocess.run(command, env=inherited, cwd=course.ROOT, capture_output=True, text=True)
    assert done.stdout.splitlines()[-3:] == ["1 False", "[2, 2] ['', '']", "True"], done
    assert done.stderr == ""
