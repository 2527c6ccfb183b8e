"""The scripts of lab 11 on a real Slurm: what the checks call right does there what the exercises ask for."""

import contextlib
import os
import re
import sys
import textwrap
from pathlib import Path

import psutil
import pytest
from conftest import is_alive, need, submitted, wait_until
from support.answers import right

from torchcourse.cluster import practice
from torchcourse_labs.cluster import _pretend_slurm as pretend

LINE = """
line = f"rank {rank} of {size} local {local} on {os.uname().nodename} threads {threads} {sys.argv[1:]}"
os.write(1, (line + "\\n").encode())  # at once: several processes write to one log
"""
# Without torchrun, only a sum over all processes shows that they find each other.
MEETS = f"""
import os, sys
import torch, torch.distributed as dist
dist.init_process_group("gloo")
total = torch.ones(())
dist.all_reduce(total)
rank, size, local, threads = dist.get_rank(), int(total), os.environ["LOCAL_RANK"], os.environ["OMP_NUM_THREADS"]
{LINE}
dist.destroy_process_group()
"""
# torchruns have met before they start a process, which then need not import PyTorch.
STARTED = f"""
import os, sys
rank, size, local, threads = map(os.environ.get, ["RANK", "WORLD_SIZE", "LOCAL_RANK", "OMP_NUM_THREADS"])
{LINE}
"""
STOPS = """
import os, signal, sys, time
def save(number, frame):
    open("saved", "w").close()
    print("saved", flush=True)
    sys.exit(75)
signal.signal(signal.SIGUSR1, save)
print("start", os.environ.get("SLURM_RESTART_COUNT", "0"), flush=True)
open("ready", "w").close()
while not os.path.exists("saved"):
    time.sleep(0.1)
sys.exit(int(sys.argv[1]))
"""


@pytest.fixture(scope="module")
def site():
    need("Slurm")
    with practice.Cluster(gpus=2, cpus=2) as site:
        yield site


@pytest.fixture
def home(tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    return tmp_path


@pytest.mark.slow
@pytest.mark.parametrize("i", range(3))
def test_the_right_job_scripts_start_a_process_for_each_gpu_of_each_node(site, home, i):
    script = right("job_script")[i]("world.py --lr 0.1", "small", 2, 2, 1, 5)
    (home / "world.py").write_text(STARTED if re.search(r"torchrun|torch.distributed.run", script) else MEETS)
    (home / "job.sh").write_text(script)
    done = site.run(submitted("job.sh"), capture_output=True, text=True, timeout=300)
    (log,) = [path for path in home.iterdir() if path.suffix in (".out", ".log")]
    assert done.returncode == 0, done.stderr + log.read_text()
    number = re.search(r"\d+", done.stdout)[0]
    assert number in log.name
    lines = sorted(line for line in log.read_text().splitlines() if line.startswith("rank"))
    end = "threads 1 ['--lr', '0.1']"
    assert [re.sub(r" on n\d", "", line) for line in lines] == [
        f"rank {rank} of 4 local {rank % 2} {end}" for rank in range(4)
    ]
    assert sorted(re.findall(r" on (n\d)", " ".join(lines))) == ["n1", "n1", "n2", "n2"]


@pytest.mark.slow
@pytest.mark.parametrize("i", range(3))
def test_the_right_scripts_come_back_once_and_go_on_with_their_log(site, home, i):
    (home / "stops.py").write_text(STOPS)
    text = right("requeue")[i]("stops.py 0", 65, 3)
    lines = text.splitlines()
    lines[1:1] = ["#SBATCH --job-name=night", "#SBATCH --output=night.out"]
    text = re.sub(r"#SBATCH --output=%x-%j.out\n", "", "\n".join(lines) + "\n")
    (home / "night.sh").write_text(text)
    batch = "--batch" if "B:" in text else ""
    command = f"""
        sbatch --parsable night.sh > number
        until [ -e ready ]; do sleep 0.1; done
        sleep 0.5
        scancel {batch} --signal=USR1 $(cat number)
        while squeue --noheader | grep -q night; do sleep 0.2; done
    """
    done = site.run(textwrap.dedent(command), capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    said = [line for line in (home / "night.out").read_text().splitlines() if line.startswith(("start", "saved"))]
    assert said == ["start 0", "saved", "start 1"], (home / "night.out").read_text()


@pytest.mark.slow
@pytest.mark.parametrize("i", range(3))
def test_a_crash_does_not_come_back(site, home, i):
    (home / "saved").touch()  # the program ends at once
    (home / "stops.py").write_text(STOPS)
    (home / "night.sh").write_text(right("requeue")[i]("stops.py 3", 65, 3))
    done = site.run("sbatch --wait night.sh", capture_output=True, text=True, timeout=300)
    assert done.returncode == 3
    (log,) = home.glob("*.out")
    assert [line for line in log.read_text().splitlines() if line.startswith("start")] == ["start 0"]


# ---------------------------------------- what pretends


def test_a_script_that_hangs_is_ended_with_all_that_it_started(tmp_path):
    mark = tmp_path / "pid"
    text = f"#!/bin/bash\nsleep 1000 & echo $! > {mark}\nwait\n"
    seen = pretend.run_job(text, hosts=["a1", "a2"], nodelist="a[1-2]", job=7, seconds=2)
    assert seen["status"] is None
    number = int(mark.read_text())
    with contextlib.suppress(psutil.NoSuchProcess):  # it has ended already
        left = psutil.Process(number)
        wait_until(lambda: not is_alive(left), "the program that the script left behind")


@pytest.mark.parametrize(
    "limit, minutes",
    [("90", 90), ("30:00", 30), ("1:30:00", 90), ("1-12", 2160), ("1-0:30", 1470), ("0-1:30:30", 90.5), ("1h", None)],
)
def test_time_limits_are_read_as_slurm_reads_them(limit, minutes):
    assert pretend.minutes(limit) == minutes


def test_lines_behind_the_first_command_are_not_read():
    text = "#!/bin/bash\n# a remark\n#SBATCH -N 2 --time 5  # five\n\n#SBATCH -oa\nset -e\n#SBATCH --mem=1G\n"
    assert pretend.options_of(text) == {"nodes": "2", "time": "5", "output": "a"}
