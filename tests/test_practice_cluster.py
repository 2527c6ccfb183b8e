"""The practice cluster: a real Slurm with two nodes, on which the commands of chapter 11 run."""

import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import psutil
import pytest
from conftest import need, wait_until

from torchcourse.cluster import practice
from torchcourse.errors import CourseError


@pytest.fixture(scope="module")
def site():
    need("Slurm")
    with practice.Cluster(gpus=2) as site:
        yield site


def ask(site, command: str) -> str:
    done = site.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout


def job(home: Path, text: str) -> str:
    (home / "job.sh").write_text("#!/bin/bash\n" + textwrap.dedent(text))
    return "job.sh"


def test_two_nodes_with_names_disks_and_memory_of_their_own(site, home):
    command = "srun --nodes=2 --ntasks-per-node=1 sh -c 'echo $(hostname) $TMPDIR $(ls -A $TMPDIR /dev/shm | wc -w)'"
    lines = sorted(line.split() for line in ask(site, command).splitlines())
    assert [line[0] for line in lines] == ["n1", "n2"] and all(line[1].startswith("/run/local/") for line in lines)
    # What one node writes to its own disk, the other does not see; the home folder is common.
    ask(site, "srun --nodes=2 --ntasks-per-node=1 sh -c 'touch /dev/shm/$(hostname) here-$(hostname)'")
    ask(site, "srun --nodes=2 --ntasks-per-node=1 sh -c 'test ! -e /dev/shm/n1 -o $(hostname) = n1'")
    assert {path.name for path in home.iterdir()} == {"here-n1", "here-n2"}


def test_gpus_can_be_asked_for(site, home):
    command = "srun --nodes=2 --ntasks-per-node=2 --gpus-per-task=1 sh -c 'echo $SLURM_NODEID:$CUDA_VISIBLE_DEVICES'"
    assert sorted(ask(site, command).split()) == ["0:0", "0:1", "1:0", "1:1"]


def test_more_memory_than_asked_for_ends_a_job(site, home):
    job(home, "#SBATCH --mem=60 --output=out\npython -c 'import time; x = bytearray(10**9); time.sleep(600)'\n")
    assert site.run("sbatch --wait job.sh", capture_output=True, timeout=300).returncode != 0
    assert "exceeded memory limit" in (home / "out").read_text()


def test_a_node_that_dies_costs_no_job(site, home):
    job(
        home,
        """
        #SBATCH --nodelist=n2 --requeue --open-mode=append --output=out
        echo start ${SLURM_RESTART_COUNT:-0}
        while [ "${SLURM_RESTART_COUNT:-0}" = 0 ]; do sleep 0.2; done
        """,
    )
    ask(site, "sbatch job.sh")
    with pytest.raises(CourseError, match="n1, n2"):
        site.down("n3")  # there is none
    wait_until(lambda: (home / "out").exists() and (home / "out").read_text(), "the first start")
    site.down("n2")
    wait_until(lambda: "down" in ask(site, "sinfo --noheader --nodes=n2 --format=%T"), "n2 down")
    assert "idle" in ask(site, "sinfo --noheader --nodes=n1 --format=%T")
    site.up("n2")
    wait_until(lambda: "start 1" in (home / "out").read_text(), "the second start")


def test_it_ends_with_the_process_that_started_it(site, home):
    """kill -9, the hardest end: no process, no network and no file of the cluster stays."""
    program = "from torchcourse.cluster import practice\n"
    program += "with practice.Cluster() as site:\n    print(site.login, flush=True)\n    input()\n"
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    networks = set(psutil.net_if_addrs())
    with subprocess.Popen([sys.executable, "-c", program], **pipes, text=True) as process:
        login = psutil.Process(int(process.stdout.readline()))
        inside = [login, *login.children(recursive=True)]
        assert {"slurmctld", "slurmd", "munged"} <= {each.name() for each in inside}
        assert set(psutil.net_if_addrs()) == networks
        process.send_signal(signal.SIGKILL)
    _, alive = psutil.wait_procs(inside, timeout=60)
    assert not alive


def test_without_root(home):
    """Root, for this test, is a user whom the kernel allows no more than anyone."""
    need("Slurm")
    program = "from torchcourse.cluster import practice\nwith practice.Cluster(gpus=1) as site:\n"
    program += "    site.run(['srun', '--nodes=2', '--gpus-per-node=1', 'sh', '-c', 'id -un; touch at-$(hostname)'])"
    plain = ["unshare", "--user", "--map-user=daemon", "--map-group=daemon"] if os.geteuid() == 0 else []
    told = subprocess.run([*plain, sys.executable, "-c", program], capture_output=True, text=True, timeout=300)
    if "unshare:" in told.stderr:
        pytest.skip(told.stderr.splitlines()[-1])  # no user namespaces
    assert len(set(told.stdout.split())) == 1 and "root" not in told.stdout, told.stderr
    assert {path.name for path in home.iterdir()} == {"at-n1", "at-n2"}


def test_why_not_is_one_sentence(monkeypatch):
    monkeypatch.setattr(practice.shutil, "which", lambda program, path: None)
    assert "slurmctld slurmd" in practice.why_not()
    with pytest.raises(CourseError, match="apt-get install"), practice.Cluster():
        pass
    monkeypatch.undo()
    monkeypatch.setattr(practice.sys, "platform", "darwin")
    assert "needs Linux" in practice.why_not()
    monkeypatch.undo()
    monkeypatch.setattr(practice.shutil, "which", lambda program, path: program)
    refused = subprocess.CompletedProcess([], 1, "", "unshare: unshare failed: Operation not permitted\n")
    monkeypatch.setattr(practice.subprocess, "run", lambda *command, **options: refused)
    all_users = "0 0 4294967295"
    cases = [(0, all_users, "namespaces.*refuses them .unshare.*permitted.[.]$"), (0, "0 1000 1", "in name only")]
    for user, users, words in (*cases, (1000, all_users, "user namesp.*`sudo make")):
        monkeypatch.setattr(practice.os, "geteuid", lambda user=user: user)
        monkeypatch.setattr(practice.Path, "read_text", lambda path, users=users: users)  # /proc/self/uid_map
        with pytest.raises(CourseError, match=words):
            practice.Cluster()
