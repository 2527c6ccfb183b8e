"""Job scripts: what a person would have written for a site; those of the practice cluster really run."""

import datetime
import itertools
import json
import re
import subprocess
from pathlib import Path

import pytest
from conftest import need, submitted

from torchcourse.cluster import job, practice
from torchcourse.commands import cli
from torchcourse.errors import CourseError

ANYWHERE = ["train.py", "--epochs", "2"]


@pytest.mark.parametrize("site", job.sites())
def test_a_profile_names_a_source_for_each_value(site):
    sources = job.profile(site)["sources"]
    for page in sources.values():
        assert page["title"] and isinstance(page["read"], datetime.date)
        assert page["url"].startswith("https://") or (Path(job.__file__).parents[3] / page["url"]).exists()
    text = (Path(job.__file__).parent / "profiles" / f"{site}.toml").read_text()
    text = re.sub(r"\n\[sources.*?(?=\n\[(?!sources)|\Z)", "", text, flags=re.S)
    for line in re.findall(r"^\w+ *=.*", text, re.M):
        named = re.search(r"# ([\w, ]+)(:.*)?$", line)
        assert named and {*named[1].split(", ")} <= {*sources}, f"{site}: {line} names no source that is there"


# What a person asks for, on each site that the course knows -> what the script has to ask for.
ONE, NODE, TWO, CPU = {"gpus": 1}, {"gpus": None}, {"nodes": 2, "gpus": None}, {"processes": 2}
SITES = {
    "zih_capella": {"gpus": 4, "cores": 14, "option": "--gres=gpu:{}", "memory": "{}M", "mib": 193_250},
    "alliance_narval": {"gpus": 4, "cores": 12, "option": "--gpus-per-node=a100:{}", "memory": "{}M", "mib": 127_500},
    "uva_afton": {"gpus": 8, "cores": 16, "option": "--gres=gpu:a100:{}", "memory": None, "mib": 0},
    "lumi_g": {"gpus": 8, "cores": 7, "option": "--gpus-per-node={}", "memory": "{}M", "mib": 61_440, "bound": True},
}


def asked(text):
    """The options of a script, as sbatch reads them: up to the first command, without comments."""
    subprocess.run(["bash", "-n"], input=text, text=True, check=True)
    head = text.partition("\n\n")[0].splitlines()
    assert head[0] == "#!/bin/bash" and all(line.startswith("#SBATCH --") for line in head[1:])
    return [line.removeprefix("#SBATCH ").partition("  #")[0] for line in head[1:]]


@pytest.mark.parametrize("request_, nodes", [(ONE, 1), (NODE, 1), (TWO, 2)])
@pytest.mark.parametrize("site", SITES)
def test_gpus_of_a_known_site(site, request_, nodes):
    known = SITES[site]
    gpus = request_["gpus"] or known["gpus"]
    text = job.script(site, ANYWHERE, time="2:00", **request_ | {"gpus": gpus})
    options = asked(text)
    assert known["option"].format(gpus) in options and f"--nodes={nodes}" in options
    bound = known.get("bound", False) and gpus == known["gpus"]  # a task for each GPU, on the cores next to it
    assert f"--cpus-per-task={(1 if bound else gpus) * known['cores']}" in options and "--time=02:00:00" in options
    assert bound == ("srun --kill-on-bad-exit=1 --cpu-bind=mask_cpu:" in text)
    memory = [option.removeprefix("--mem=") for option in options if option.startswith("--mem=")]
    assert memory == ([known["memory"].format(gpus * known["mib"])] if known["memory"] else [])
    assert f"OMP_NUM_THREADS={known['cores']} " in text
    assert (f"--nproc-per-node={gpus} " in text) == (gpus > 1 and not bound)
    assert "--account=YOUR_ACCOUNT" in options
    assert "--account=mine" in asked(job.script(site, ANYWHERE, gpus=gpus, account="mine"))


@pytest.mark.parametrize("site", job.sites())
def test_a_job_array_and_a_requeued_job(site):
    gpus = SITES.get(site, {}).get("gpus", 0)
    options = asked(job.script(site, ANYWHERE, gpus=min(1, gpus), time="0:30", array="0-9%2", mail="me@example.org"))
    assert {"--array=0-9%2", "--output=%x-%A_%a.out", "--mail-user=me@example.org"} <= {*options}
    text = job.script(site, ANYWHERE, gpus=gpus, nodes=2, time="0:30", again=120)
    assert {"--requeue", "--signal=USR1@120", "--open-mode=append"} <= {*asked(text)}
    assert f"--ntasks-per-node={gpus or 1}" in asked(text) and "torchrun" not in text
    assert 'scontrol requeue "$SLURM_JOB_ID"' in text and text.count("|| status=$?") == 1
    # The first rank that stops must not end the others.
    assert re.search("srun --kill-on-bad-exit=0 --wait=60 (--cpu-bind.* )?bash -c", text)
    assert "--kill-on-bad-exit=1" in job.script(site, ANYWHERE, gpus=gpus, nodes=2, time="0:30")


def test_a_job_without_gpus():
    options = asked(job.script("alliance_narval", ANYWHERE, cores=16))
    assert "--mem=64000M" in options and not [o for o in options if "gpu" in o or "partition" in o]
    assert "--partition=standard" in asked(job.script("uva_afton", ANYWHERE))
    assert "--partition=parallel" in asked(job.script("uva_afton", ANYWHERE, nodes=2))
    text = job.script("local", ["train.py", "a b"])
    assert text.endswith("srun python train.py 'a b'\n") and "torchrun" not in text, "one process needs no launcher"


def test_each_way_to_get_pytorch():
    too_old = job.script("zih_capella", ANYWHERE, gpus=1)
    assert 'source "$HOME/venv/bin/activate"' in too_old and "module" not in too_old
    narval = job.script("alliance_narval", ANYWHERE, nodes=2, gpus=4)
    assert 'srun --ntasks="$SLURM_NNODES" --ntasks-per-node=1' in narval and "--no-index torch" in narval
    inside = 'singularity run "$SIF" "/project/$SLURM_JOB_ACCOUNT/venv/bin/python"'
    assert f"srun {inside} train.py" in job.script("lumi_g", ANYWHERE, gpus=1)
    assert f"{inside} -m torch.distributed.run --nnodes" in job.script("lumi_g", ANYWHERE, gpus=2)
    assert f"exec {inside} train.py" in job.script("lumi_g", ANYWHERE, gpus=8)
    # An image in place of what the site has.
    text = job.script("uva_afton", ANYWHERE, gpus=8, container="my image.sif")
    assert "srun --kill-on-bad-exit=1 apptainer exec --nv 'my image.sif' python -m torch.distributed.run --nn" in text
    assert "module load apptainer\n" in text and "pages name" not in text and "PYTHONNOUSERSITE=1" in text
    assert "singularity exec image.sif python train.py" in job.script("lumi_g", ANYWHERE, gpus=1, container="image.sif")
    assert "srun apptainer exec image.sif python train.py" in job.script("local", ANYWHERE, container="image.sif")


def test_a_kernel_loads_its_module(tmp_path):
    page = (Path(job.__file__).parents[3] / "docs" / "sites.md").read_text()
    kernel = json.loads(re.search(r"```json\n(.*?)```", page, re.S)[1])
    (tmp_path / ".bash_profile").write_text(f"module() {{ echo module $*; }}; PATH={tmp_path}:$PATH")
    (tmp_path / "python").symlink_to("/bin/echo")
    words = [word.format(connection_file="a file.json") for word in kernel["argv"]]
    said = subprocess.run(words, env={"HOME": str(tmp_path)}, capture_output=True, text=True, check=True).stdout
    assert said == "module load pytorch/2.11\n-m ipykernel_launcher -f a file.json\n"


def test_masks_give_each_gpu_cores_of_its_own():
    place = job.profile("lumi_g")["partition"][0]
    masks = [int(mask, 16) for mask in place["cpu_bind"].removeprefix("mask_cpu:").split(",")]
    assert len(masks) == place["gpus"] and {mask.bit_count() for mask in masks} == {place["cores"] // place["gpus"]}
    assert sum(masks).bit_count() == place["cores"], "two GPUs share a core"


@pytest.mark.parametrize(
    "site, options, words",
    [
        ("zih_capella", {}, "only jobs that use GPUs: ask for one with --gpus"),
        ("zih_capella", {"gpus": 5}, "5 GPUs on each node, and a node has 4"),
        ("zih_capella", {"gpus": 1, "cores": 15}, "Capella gives at most 14 with 1 of a node's 4 GPUs"),
        ("zih_capella", {"gpus": 1, "memory": 200}, "200 GiB .* at most 188 with 1 of a node's 4 GPUs"),
        ("zih_capella", {"gpus": 1, "time": "7-00:01"}, "169 h of time.* at most 168"),
        ("alliance_narval", {"gpus": 1, "time": "8-0:00", "partition": "other"}, "partition other gives at most 168"),
        ("uva_afton", {"gpus": 8, "nodes": 5}, "5 nodes, and a job gets at most 4"),
        ("uva_afton", {"gpus": 4, "nodes": 2}, "all 8 GPUs of each"),
        ("uva_afton", {"partition": "standard", "gpus": 1}, "a node has none"),
        ("lumi_g", {"partition": "standard-g", "gpus": 4}, "whole nodes, with 8 GPUs each: ask for all"),
        ("uva_afton", {"partition": "parallel"}, "at least 2 nodes"),
        ("local", {"processes": 8}, "8 cores"),
        ("local", {"partition": "gpu"}, "^The practice cluster .* has no partition 'gpu'"),
        ("local", {"nodes": 0}, "at least one"),
        ("generic", {"array": "0-"}, "array"),
        ("generic", {"array": "0-9 --wrap=x"}, "array"),
    ],
)
def test_what_a_site_does_not_have_is_refused(site, options, words):
    with pytest.raises(CourseError, match=words):
        job.script(site, ANYWHERE, **({"time": "0:30"} | options))


def test_two_colon_zero_zero_is_two_hours():
    limits = {"2:00": "02:00:00", "30:00": "1-06:00:00", "1-12:00": "1-12:00:00", "0:01:30": "00:01:30"}
    assert {text: job.limit(text) for text in limits} == limits
    for text in ("2", "two", "0:00", "1:75", "1:5", "1-2"):  # which can be misread
        with pytest.raises(CourseError, match="time"):
            job.limit(text)


def test_a_profile_of_your_own(tmp_path):
    mine = tmp_path / "mine.toml"
    mine.write_text('title = "Mine"\naccount = "required"\n[[partition]]\nname = "gpu"\ncores = 64\ngpus = 4\n')
    text = job.script(str(mine), ANYWHERE, gpus=2)
    assert "--partition=gpu" in text and "--cpus-per-task=32" in text and "YOUR_ACCOUNT" in text
    assert "YOUR_ACCOUNT" not in job.script(str(mine), ANYWHERE, account="project7")
    mine.write_text('title = "Mine"\n[[partition]]\nname = "all"\nmib = 64_000\n')
    assert "--mem" not in job.script(str(mine), ANYWHERE), "left to the site: nothing says how many cores share it"
    mine.write_text(mine.read_text() + "cores = 16\n")
    assert "#SBATCH --mem=8000M" in job.script(str(mine), ANYWHERE, cores=2)
    for version, old in (("2.10.1", True), ("2.11.0+cu130", False), ("3.0", False)):
        mine.write_text(f'title = "Mine"\n[environment]\npytorch = "{version}"\nlines = ["module load its"]\n')
        text = job.script(str(mine), ANYWHERE)
        assert (f"# The site's pages name PyTorch {version}" in text) == ("load its" not in text) == old
    mine.write_text("title = ")
    with pytest.raises(CourseError, match=r"mine\.toml cannot be read"):
        job.script(str(mine), ANYWHERE)
    with pytest.raises(CourseError, match="Choose one of"):
        job.script("nowhere", ANYWHERE)


def test_the_command(capsys):
    def told(*words, code=0):
        assert cli.main(["job", *words]) == code
        out, err = capsys.readouterr()
        return err if code else out

    assert told("--site", "local", "--time", "0:30", *ANYWHERE) == job.script("local", ANYWHERE, time="0:30")
    assert "practice cluster" in told("--sites")
    about = told("--site", "zih_capella", "--about")
    assert "https://" in about and "2026-" in about and "pages name PyTorch 2.1.2" in " ".join(about.split())
    assert "bin/pip" in about  # how to make the environment that jobs use instead
    assert "Say which script" in told(code=1)


def test_slurm_takes_the_options_of_every_site(home):
    need("Slurm")
    requests = ({"gpus": 1}, {}, {"nodes": 2}, {"nodes": 2, "again": 120}, {"array": "0-3", "mail": "a@b.org"})
    with practice.Cluster(nodes=2, cpus=128, gpus=8, mib=800_000) as site:
        for (name, known), options in itertools.product(SITES.items(), requests):
            text = job.script(name, ANYWHERE, **{"gpus": known["gpus"]} | options)
            text = re.sub(r"#SBATCH --(partition|constraint)=.*\n", "", text)  # what only that site has
            text = re.sub(r"(gres=gpu:|gpus-per-node=)(a100:)", r"\1", text)
            (home / "job.sh").write_text(re.sub(r"--time=.*", "--time=00:30:00", text))
            told = site.run("sbatch --test-only job.sh", capture_output=True, text=True)
            assert told.returncode == 0, f"{name} {options}: {told.stderr}{text}"
        (home / "job.sh").write_text("#!/bin/bash\n#SBATCH --gpus-per-nodes=1\n")  # and it would have noticed
        assert site.run("sbatch --test-only job.sh", capture_output=True).returncode != 0


WORLD = """
import os, torch, torch.distributed as dist
dist.init_process_group("gloo")
total = torch.tensor([1.0 + dist.get_rank()])
dist.all_reduce(total)
print("rank", dist.get_rank(), "of", dist.get_world_size(), total.item(), os.environ["OMP_NUM_THREADS"], flush=True)
dist.destroy_process_group()
"""
STOPS = """
import atexit, os, signal, sys, time
from torchcourse import checkpoint, distributed
keeper, start = checkpoint.Keeper("run"), os.environ.get("SLURM_RESTART_COUNT", "0")
with checkpoint.StopFlag(signal.SIGUSR1) as stop, distributed.setup("gloo") as me:
    print("start", start, me.rank, "with a checkpoint:", keeper.newest is not None, flush=True)
    if me.rank == 1:
        atexit.register(time.sleep, 3)  # one rank is slow to end
    while start == "0":
        time.sleep(0.1)
        if stop.agreed():
            if me.is_main:
                time.sleep(3)  # and one is slow to save
                keeper.save(1)
            stop.exit()
"""


def test_scripts_of_the_practice_cluster_run(home, monkeypatch):
    need("Slurm")
    monkeypatch.setenv("SLURM_KILL_BAD_EXIT", "1")  # as where a site's KillOnBadExit says so
    (home / "world.py").write_text(WORLD)
    (home / "stops.py").write_text(STOPS)
    (home / "world.sh").write_text(job.script("local", ["world.py"], nodes=2, time="0:10"))
    (home / "stops.sh").write_text(job.script("local", ["stops.py"], nodes=2, time="0:30", again=60))
    with practice.Cluster() as site:
        assert site.run(submitted("world.sh"), timeout=300).returncode == 0
        lines = next(home.glob("world-*.out")).read_text().splitlines()
        assert sorted(line for line in lines if line.startswith("rank")) == ["rank 0 of 2 3.0 1", "rank 1 of 2 3.0 1"]
        # Requeued by its own exit status, then over with status 0, which is the end to wait for. The signal comes when
        # both processes say that they listen; the one that Slurm sends would come at a time of its own.
        both = "until [ $(cat stops-*.out 2>/dev/null | grep -c start) -eq 2 ]; do sleep 0.2; done"
        command = f"({submitted('stops.sh')}) & {both}; scancel --signal=USR1 --name=stops; wait $!"
        assert site.run(command, timeout=300).returncode == 0
    lines = next(home.glob("stops-*.out")).read_text().splitlines()
    expected = [f"start {start} {rank} with a checkpoint: {start == 1}" for start in range(2) for rank in range(2)]
    assert sorted(line for line in lines if line.startswith("start")) == expected
