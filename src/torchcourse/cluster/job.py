"""Job scripts: what you would write yourself for a site, from what you ask for and from the site's profile.

    print(job.script("local", ["train.py", "--epochs", "2"], nodes=2, processes=2, time="0:10"))

A profile is a TOML file in `profiles`, or one of your own: the site's partitions and their limits, how to get PyTorch
there, where its fast disks are, and where each of these is documented.
"""

import re
import shlex
import textwrap
import tomllib
from collections.abc import Sequence
from importlib import resources
from pathlib import Path
from typing import Any

from torchcourse.checkpoint import AGAIN
from torchcourse.errors import CourseError
from torchcourse.importing import OLDEST_TORCH


def sites() -> dict[str, str]:
    """The profiles that come with the course: name -> title."""
    files = sorted(Path(str(each)) for each in resources.files("torchcourse.cluster").joinpath("profiles").iterdir())
    return {file.stem: tomllib.loads(file.read_text())["title"] for file in files if file.suffix == ".toml"}


def profile(site: str) -> dict[str, Any]:
    """The profile of a site: one of `sites()`, or the path of a TOML file of your own."""
    path = Path(site)
    if path.suffix != ".toml":
        path = Path(str(resources.files("torchcourse.cluster").joinpath("profiles", f"{site}.toml")))
        if not path.is_file():
            known = ", ".join(sites())
            raise CourseError(
                f"There is no profile {site!r}. Choose one of {known}, or give the path of your own file."
            )
    try:
        return tomllib.loads(path.read_text())
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise CourseError(f"The profile {path} cannot be read: {error}") from error


def describe(site: str) -> str:
    """What a profile is based on: its pages and their dates, what is too old, and what to type on the site first."""
    known = profile(site)
    lines = [
        known["title"],
        "",
        *(f"{page['title']}, {page['read']}\n  {page['url']}" for page in known["sources"].values()),
    ]
    lines += ["", *textwrap.wrap(note, 100)] if (note := outdated(known)) else []
    source = environment(known)
    make = source.get("make", [])
    if make and "fallback" in known:  # an environment that is made inside the site's own
        make = [*source["lines"], *make]
    steps = [*known["first_steps"], *make]
    return "\n".join([*lines, "", "On the login node, first:", *(f"  {step}" for step in steps)])


def called(about: dict[str, Any]) -> str:
    """What to call the site of this profile in a sentence: its title up to the comma."""
    return about["title"].partition(",")[0]


def outdated(about: dict[str, Any]) -> str:
    """What to do where a site documents a PyTorch that is too old for this course; "" if its version is new enough."""
    version = about.get("environment", {}).get("pytorch")
    if not version or tuple(map(int, re.findall(r"\d+", version)[:2])) >= OLDEST_TORCH:
        return ""
    return (
        f"The site's pages name PyTorch {version}, and this course needs {'.'.join(map(str, OLDEST_TORCH))} or newer. "
        "So jobs use an environment of your own, which you make once: `torchcourse job --site … --about` shows how. "
        "If the site has a newer PyTorch by now, put that into a copy of the profile instead."
    )


def environment(about: dict[str, Any], image: str | None = None, gpus: int = 0) -> dict[str, Any]:
    """How a job gets its PyTorch: `lines` of the script, and what to call as `python`.

    The site's own way; or from an image; or, where the site's PyTorch is too old, from an environment of your own.
    """
    own = about.get("environment", {})
    if image:
        site = about.get("container", {})
        run = site.get("run", "apptainer exec --nv" if gpus else "apptainer exec")
        alone = "export PYTHONNOUSERSITE=1  # or packages in ~/.local would hide those of the image"
        return {"lines": [*site.get("lines", []), alone], "python": f"{run} {shlex.quote(image)} python"}
    if outdated(about):
        return own | about["fallback"] if "fallback" in about else profile("generic")["environment"]
    return own


def limit(text: str) -> str:
    """A time limit as Slurm wants it, D-HH:MM:SS. "2:00" is two hours here; Slurm would read two minutes.

    text: H:MM, H:MM:SS or D-H:MM:SS.
    """
    match = re.fullmatch(r"(?:(\d+)-)?(\d+):(\d\d)(?::(\d\d))?", text)
    if not match:
        raise CourseError(f"The time is {text!r}. Write hours and minutes, such as 2:00, or days in front: 1-12:00.")
    days, hours, minutes, seconds = (int(part or 0) for part in match.groups())
    total = ((days * 24 + hours) * 60 + minutes) * 60 + seconds
    if total == 0 or minutes > 59 or seconds > 59:
        raise CourseError(f"The time is {text!r}: minutes go from 00 to 59, and the whole is more than nothing.")
    days, rest = divmod(total, 86_400)
    clock = f"{rest // 3600:02}:{rest // 60 % 60:02}:{rest % 60:02}"
    return f"{days}-{clock}" if days else clock


def script(
    site: str,
    program: Sequence[str],
    *,
    nodes: int = 1,
    processes: int | None = None,
    gpus: int = 0,
    cores: int | None = None,
    memory: int | None = None,
    time: str = "1:00",
    partition: str | None = None,
    account: str | None = None,
    name: str | None = None,
    array: str | None = None,
    mail: str | None = None,
    again: int = 0,
    container: str | None = None,
) -> str:
    """The text of a job script.

    site: a name of `sites()`, or the path of a profile.
    program: your script and its arguments.
    nodes, gpus: how many nodes, and GPUs of each.
    processes: of each node; without it one for each GPU, or one.
    cores: of each process; without it the process's share of the partition's cores, or one.
    memory: GiB of each node; without it the share that goes with the GPUs or cores, where the profile knows it.
    time: hours and minutes, see `limit`.
    array: indices such as "0-9" or "0-9%2", one job for each; the program reads SLURM_ARRAY_TASK_ID.
    mail: an address; Slurm writes to it when the job has ended or failed.
    again: seconds before the time limit at which every process gets SIGUSR1. If your program then exits with
        `checkpoint.AGAIN`, the job goes back into the queue and starts again. 0: neither.
    container: the path of an Apptainer image with PyTorch, in place of what the site has (apptainer.def makes one).

    Raises CourseError for what the partition does not have.
    """
    about = profile(site)
    processes = processes or gpus or 1
    for what, count in (("nodes", nodes), ("processes", processes)):
        if count < 1:
            raise CourseError(f"{what} is {count}: a job needs at least one.")
    if array is not None and not re.fullmatch(r"\d+(-\d+(:\d+)?)?(,\d+(-\d+(:\d+)?)?)*(%\d+)?", array):
        raise CourseError(f"The array is {array!r}. Write indices such as 0-9, or 0-9%2 for two at a time.")
    place = _partition(about, partition, nodes, gpus)
    time = limit(time)
    cores = cores or _share(place, processes, gpus)
    _refuse_too_much(about, place, nodes, processes * cores, gpus, memory, time)

    # The cores next to each GPU, where the site names them. That is for whole nodes with a process for each GPU.
    bind = place.get("cpu_bind") if gpus == processes == place.get("gpus") else None
    one_task_each = bool(again or bind) or nodes * processes == 1  # then srun starts every process itself
    tasks, cores_of_task = (processes, cores) if one_task_each else (1, processes * cores)
    gpu_option = place.get("gpu_option", "gpus-per-node={}") if gpus else "gpus"
    request = {
        "job-name": name or Path(program[0]).stem,
        "account": account,
        "partition": place.get("name"),
        "nodes": nodes,
        "ntasks-per-node": tasks,
        "cpus-per-task": cores_of_task,
        gpu_option.partition("=")[0]: gpu_option.partition("=")[2].format(gpus) or None,
        "mem": f"{memory}G" if memory else _memory(place, processes * cores, gpus),
        "time": time,
        "array": array,
        "output": "%x-%A_%a.out" if array else "%x-%j.out",
        "mail-user": mail,
        "mail-type": "END,FAIL" if mail else None,
        "signal": f"USR1@{again}" if again else None,
        "open-mode": "append" if again else None,
    }
    lines = ["#!/bin/bash", *(f"#SBATCH --{key}={value}" for key, value in request.items() if value is not None)]
    lines += [f"#SBATCH --{option}" for option in place.get("options", [])]
    lines += ["#SBATCH --requeue"] if again else []
    if about.get("account") == "required" and not account:
        lines += ["#SBATCH --account=YOUR_ACCOUNT  # this site wants one: ask your group"]
    source = environment(about, container, gpus)
    # Without -u: the scripts of modules and environments may read variables that are not set.
    lines += ["", "set -eo pipefail", ""]
    lines += [f"# {line}" for line in textwrap.wrap("" if container else outdated(about), 110)]
    lines += source.get("lines", [])
    if disk := about.get("disk", {}).get("node_local"):
        lines += [f"# The node's own disk: {disk}. Copy your data there first, and results back before the job ends."]
    lines += [f"export OMP_NUM_THREADS={cores}  # the cores of one process"]
    # From Slurm 22.05 to 23.02, srun does not take this over from the lines above.
    lines += [f"export SRUN_CPUS_PER_TASK={cores_of_task}", ""]
    python = source.get("python", "python")
    lines += _start(shlex.join(program), python, nodes * processes, processes, one_task_each, bool(again), bind)
    if again:
        lines[-1] += " || status=$?"
        lines.insert(-1, "status=0")
        lines += [f'if [ "$status" -eq {AGAIN} ]; then  # stopped before the limit, with a checkpoint']
        lines += ['    scontrol requeue "$SLURM_JOB_ID"', "fi", 'exit "$status"']
    return "\n".join(lines) + "\n"


def _start(
    program: str, python: str, world: int, processes: int, one_task_each: bool, again: bool, bind: str | None
) -> list[str]:
    """The lines that start all processes.

    python: how a job calls Python on this site. In a container torchrun is a module of that Python.
    bind: srun's --cpu-bind, one mask for each process of a node.
    """
    if world == 1:
        return [f"srun {python} {program}"]
    meet = [
        "# All processes meet on the first node, at a port of their own: computed from the number of the job.",
        'head=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)',
        "port=$((20000 + SLURM_JOB_ID % 12000))",
        "",
    ]
    srun, why = "srun --kill-on-bad-exit=1", []  # without it, the others may wait for a rank that has crashed
    if again:
        srun = "srun --kill-on-bad-exit=0 --wait=60"
        why = [
            "# Status 75 is a bad exit to Slurm: ranks that stop must not kill one another. After a crash, the others",
            "# have a minute.",
        ]
    if bind:
        why.append("# Each process on the cores next to its GPU.")
        srun += f" --cpu-bind={bind}"
    if one_task_each:
        variables = "RANK=$SLURM_PROCID LOCAL_RANK=$SLURM_LOCALID WORLD_SIZE=$SLURM_NTASKS"
        inner = shlex.quote(f"{variables} exec {python} {program}")
        return [*meet, "export MASTER_ADDR=$head MASTER_PORT=$port", *why, f"{srun} bash -c {inner}"]
    torchrun = "torchrun" if python == "python" else f"{python} -m torch.distributed.run"
    return [
        *meet,
        f'{srun} {torchrun} --nnodes="$SLURM_NNODES" --nproc-per-node={processes} --rdzv-id="$SLURM_JOB_ID" \\',
        f'    --rdzv-backend=c10d --rdzv-endpoint="$head:$port" {program}',
    ]


def _partition(about: dict[str, Any], name: str | None, nodes: int, gpus: int) -> dict[str, Any]:
    """The partition asked for, or the first one that takes such a job; {} where the profile knows none.

    A site may choose the partition itself: then the profile's entries have no name, and describe kinds of nodes.
    """
    partitions = about.get("partition", [])
    named = [each for each in partitions if "name" in each]
    if name is not None and named:
        found = [each for each in named if each["name"] == name]
        if not found:
            known = ", ".join(each["name"] for each in named)
            raise CourseError(f"{called(about)} has no partition {name!r}. Its partitions: {known}.")
        return found[0]
    nearest = max(partitions, key=lambda each: bool(gpus) and each.get("gpus", 0), default={})
    place = next((each for each in partitions if not _misfit(each, nodes, gpus)), nearest)
    return {**place, "name": name} if name is not None else place


def _misfit(place: dict[str, Any], nodes: int, gpus: int) -> str:
    """What such a job has to change for this partition, in words; "" if nothing."""
    if gpus > place.get("gpus", gpus):
        has = place["gpus"]
        return f"you ask for {gpus} GPUs on each node, and a node has {has or 'none'}"
    if not gpus and place.get("needs_gpu"):
        return "it takes only jobs that use GPUs: ask for one with --gpus"
    if nodes > place.get("most_nodes", nodes):
        return f"you ask for {nodes} nodes, and a job gets at most {place['most_nodes']}"
    if nodes < place.get("fewest_nodes", nodes):
        return f"a job needs at least {place['fewest_nodes']} nodes"
    if gpus < place.get("fewest_gpus", 0):
        return f"it gives whole nodes, with {place['gpus']} GPUs each: ask for all"
    if nodes > 1 and gpus and place.get("whole_nodes") and gpus < place["gpus"]:
        return f"a job on several nodes asks for all {place['gpus']} GPUs of each"
    return ""


def _share(place: dict[str, Any], processes: int, gpus: int) -> int:
    """Cores of one process: as many as belong to its GPU, or one."""
    if gpus and place.get("cores") and place.get("gpus"):
        return max(1, place["cores"] * gpus // place["gpus"] // processes)
    return 1


def _memory(place: dict[str, Any], cores: int, gpus: int) -> str | None:
    """The memory of a node that belongs to these GPUs or cores, None where the site's default has to do."""
    part, whole = (gpus, place.get("gpus")) if gpus else (cores, place.get("cores"))
    return f"{place['mib'] * part // whole}M" if place.get("mib") and whole else None


def _refuse_too_much(
    about: dict[str, Any], place: dict[str, Any], nodes: int, cores: int, gpus: int, memory: int | None, time: str
) -> None:
    where = f"the partition {place['name']}" if "name" in place else called(about)
    if misfit := _misfit(place, nodes, gpus):
        raise CourseError(f"This job does not fit {where}: {misfit}.")
    days, _, clock = time.rpartition("-")
    hours = 24 * int(days or 0) + int(clock[:2]) + (clock[3:] > "00:00")
    share = gpus / place["gpus"] if gpus and place.get("share_only") else 1  # some sites cap the rest by the GPUs
    for what, asked, has, part in (
        ("cores on each node", cores, place.get("cores"), share),
        ("GiB of memory on each node", memory or 0, place.get("mib") and place["mib"] / 1024, share),
        ("h of time", hours, place.get("hours"), 1),
    ):
        if has is not None and asked > int(has * part):
            beside = f" with {gpus} of a node's {place['gpus']} GPUs" if part < 1 else ""
            raise CourseError(f"You ask for {asked} {what}; {where} gives at most {int(has * part)}{beside}.")
