"""The scripts of lab 11 on a real Slurm: what the checks call right does there what the exercises ask for."""

import contextlib
import re
import textwrap

import psutil
import pytest
from conftest import is_alive, need, submitted, wait_until
from support.answers import right, wrong

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


@pytest.mark.parametrize("i", range(3))
def test_the_right_job_scripts_start_a_process_for_each_gpu_of_each_node(site, home, i):
    script = right("job_script")[i]("world.py --lr 0.1", "small", 2, 2, 1, 5)
    (home / "world.py").write_text(STARTED if re.search(r"torchrun|torch.distributed.run", script) else MEETS)
    (home / "job.sh").write_text(script)
    done = site.run(submitted("job.sh"), capture_output=True, text=True, timeout=300)
    (log,) = [path for path in home.iterdir() if path.suffix in (".out", ".log")]
    assert done.returncode == 0, done.stderr + log.read_text()
    assert re.search(r"\d+", done.stdout)[0] in log.name
    lines = sorted(line for line in log.read_text().splitlines() if line.startswith("rank"))
    assert [re.sub(r" on n\d", "", line) for line in lines] == [
        f"rank {rank} of 4 local {rank % 2} threads 1 ['--lr', '0.1']" for rank in range(4)
    ]
    assert sorted(re.findall(r" on (n\d)", " ".join(lines))) == ["n1", "n1", "n2", "n2"]


@pytest.mark.parametrize("i", range(3))
def test_the_right_scripts_come_back_once_and_not_after_a_crash(site, home, i):
    (home / "stops.py").write_text(STOPS)
    named = "\n#SBATCH --job-name=night\n#SBATCH --output=night.out\n"
    for status in (0, 3):
        text = right("requeue")[i](f"stops.py {status}", 65, 3).replace("#SBATCH --output=%x-%j.out\n", "")
        (home / f"night{status}.sh").write_text(text.replace("\n", named, 1))
    batch = "--batch" if "B:" in text else ""
    command = f"""
        sbatch --parsable night0.sh > number
        until [ -e ready ]; do sleep 0.1; done
        sleep 0.5
        scancel {batch} --signal=USR1 $(cat number)
        while squeue --noheader | grep -q night; do sleep 0.2; done
        sbatch --wait night3.sh
    """
    done = site.run(textwrap.dedent(command), capture_output=True, text=True, timeout=300)
    assert done.returncode == 3, done.stderr
    said = [line for line in (home / "night.out").read_text().splitlines() if line.startswith(("start", "saved"))]
    assert said == ["start 0", "saved", "start 1", "start 0"], "the last one is the crash: it ends at once"


def test_the_first_job_says_nothing_until_it_is_repaired(site, home):
    (home / "train.py").write_text("import os\nos.write(1, f'rank {os.environ[\"RANK\"]}\\n'.encode())\n")
    for script, said in ((wrong("repair_job")["folder"][0], []), (right("repair_job")[0], ["rank 0", "rank 1"])):
        (home / "job.sh").write_text(script)
        done = site.run("sbatch --wait --cpus-per-task=2 job.sh", capture_output=True, text=True, timeout=300)
        lines = [line for log in home.glob("*.out") for line in log.read_text().splitlines()]
        assert sorted(line for line in lines if line.startswith("rank")) == said and (done.returncode == 0) == bool(
            said
        )


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


def test_scripts_are_read_as_slurm_reads_them():
    limits = {"90": 90, "30:00": 30, "1:30:00": 90, "1-12": 2160, "1-0:30": 1470, "0-1:30:30": 90.5, "1h": None}
    assert {limit: pretend.minutes(limit) for limit in limits} == limits
    text = "#!/bin/bash\n# a remark\n#SBATCH -N 2 --time 5  # five\n\n#SBATCH -oa\nset -e\n#SBATCH --mem=1G\n"
    assert pretend.options_of(text) == {"nodes": "2", "time": "5", "output": "a"}, "up to the first command"
