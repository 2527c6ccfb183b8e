"""The commands of the pretended Slurm: python _slurm_commands.py NAME WORD… does as if it were the command NAME.

`_pretend_slurm` puts this file onto the PATH of a job script, under the names of the commands. A script starts it many
times, so it imports little: Python itself starts in half the time that `subprocess` takes.
"""

import os
import sys

SHORT = {"J": "job-name", "n": "ntasks", "N": "nodes", "c": "cpus-per-task", "G": "gpus", "t": "time", "o": "output"}
# Options without a value, of sbatch, srun and torchrun.
FLAGS = {"requeue", "no-requeue", "exclusive", "oversubscribe", "hold", "parsable", "quiet", "verbose", "exact"}
FLAGS |= {"overlap", "label", "unbuffered", "overcommit", "kill-on-bad-exit", "standalone", "no-python", "module"}
FLAGS |= {*"luvqmKOsH"}


def options(words: list[str]) -> tuple[dict[str, str], list[str]]:
    """The options at the beginning by their long names, and what follows them."""
    found, rest = {}, list(words)
    while rest and rest[0].startswith("-"):
        word = rest.pop(0)
        if word.startswith("--"):
            key, given, value = word[2:].replace("_", "-", word.partition("=")[0].count("_")).partition("=")
        else:
            key, value = SHORT.get(word[1:2], word[1:2]), word[2:]
            given = value
        if not given and key not in FLAGS and rest and not rest[0].startswith("-"):
            value = rest.pop(0)
        found[key] = value
    return found, rest


def mark(name: str) -> str:
    """A file beside the list of calls: "ready" (the program's number, and if it is in a step), "saving", or "saved"."""
    return os.path.join(os.path.dirname(os.environ["PRETEND_CALLS"]), name)


def note(command: str, words: list[str], **more: object) -> None:
    with open(os.environ["PRETEND_CALLS"], "a") as file:
        file.write(repr({"command": command, "words": words, **more}) + "\n")


def names(nodelist: str) -> list[str]:
    """The nodes of "gpu[03-05,9]"."""
    prefix, bracket, inner = nodelist.rstrip("]").partition("[")
    found = []
    for part in inner.split(",") if bracket else []:
        first, _, last = part.partition("-")
        found += [prefix + str(i).zfill(len(first)) for i in range(int(first), int(last or first) + 1)]
    return found or [prefix]


def srun(words: list[str]) -> None:
    """Starts the tasks one after the other, each with Slurm's variables. Passes USR1 on to the task that runs."""
    import signal
    import subprocess

    env, (given, program) = os.environ, options(words)
    note("srun", words)
    hosts = names(env["SLURM_JOB_NODELIST"])[: int(given.get("nodes", "99").split("-")[0])]
    each = int(given.get("ntasks-per-node") or env["PRETEND_TASKS"])
    total = int(given.get("ntasks") or each * len(hosts))
    gpus = int(env.get("SLURM_GPUS_ON_NODE") or 0)
    own = given.get("gpus-per-task") or env.get("SLURM_GPUS_PER_TASK") or ""
    own = int(own.rpartition(":")[2] or 0)  # GPUs that a task sees for itself; 0: all those of its node
    status = rank = 0
    for node, host in enumerate(hosts):
        count = total // len(hosts) + (node < total % len(hosts))
        for local in range(count):
            cores = given.get("cpus-per-task") or env.get("SRUN_CPUS_PER_TASK")
            cores = cores or int(env.get("SLURM_CPUS_PER_GPU") or 0) * gpus // count or 1
            visible = range(local * own, (local + 1) * own) if own else range(gpus)
            variables = {
                "SLURM_NODEID": node,
                "SLURM_PROCID": rank,
                "SLURM_LOCALID": local,
                "SLURM_NTASKS": total,
                "SLURM_NPROCS": total,
                "SLURM_NNODES": len(hosts),
                "SLURM_CPUS_PER_TASK": cores,
                "SLURMD_NODENAME": host,
                "HOSTNAME": host,
                "PRETEND_STEP": 1,
                "CUDA_VISIBLE_DEVICES": ",".join(map(str, visible)),
            }
            try:
                task = subprocess.Popen(program, env={**env, **{key: str(value) for key, value in variables.items()}})
            except OSError as error:
                sys.exit(f"slurmstepd: error: execve(): {program[0]}: {error.strerror}")
            signal.signal(signal.SIGUSR1, lambda number, frame, task=task: task.send_signal(number))
            ended = task.wait()
            status, rank = max(status, ended if ended >= 0 else 128 - ended), rank + 1
    sys.exit(status)


def scontrol(words: list[str]) -> None:
    if words[:2] in (["show", "hostnames"], ["show", "hostname"]):
        print("\n".join(names((words[2:] or [os.environ["SLURM_JOB_NODELIST"]])[0])))
    else:
        note("scontrol", words, saved=os.path.exists(mark("saved")))


def scancel(words: list[str]) -> None:
    """With a signal, it sends this to the steps of the job, not to its script."""
    note("scancel", words)
    asked = " ".join(words).replace("=", " ").replace("SIG", "") + " "
    if ("--signal USR1 " in asked or "-s USR1 " in asked) and os.path.exists(mark("ready")):
        with open(mark("ready")) as file:
            process, in_step = map(int, file.read().split())
        if in_step:
            import signal

            os.kill(process, signal.SIGUSR1)


def python(words: list[str]) -> None:
    env = os.environ
    if words[:2] == ["-m", "torch.distributed.run"]:
        torchrun(words[2:])
    program = list(words)
    while program and program[0] in ("-u", "-O", "-B", "-I", "-E", "-s"):
        program.pop(0)
    if not program or program[0].startswith("-"):
        os.execv(sys.executable, [sys.executable, *words])
    ranks = {"rank": env.get("RANK"), "size": env.get("WORLD_SIZE")}
    meet = {"host": env.get("MASTER_ADDR"), "port": env.get("MASTER_PORT")}
    local = env.get("LOCAL_RANK", "")
    work("python", program, [process("python", program, local) | ranks | meet])


def torchrun(words: list[str]) -> None:
    given, program = options(words)
    each = given.get("nproc-per-node", "1")
    each = os.environ.get("SLURM_GPUS_ON_NODE", "1") if each in ("gpu", "auto") else each
    each = int(each) if each.isdigit() else 1
    nodes = given.get("nnodes", "1").rpartition(":")[2]
    host, _, port = given.get("rdzv-endpoint", "").partition(":")
    finds_ranks = given.get("rdzv-backend", "static") != "static"
    number = given.get("node-rank", "")
    first = None if finds_ranks else each * int(number) if number.isdigit() else 0
    alone = not nodes.isdigit() or int(nodes) == 1 or "standalone" in given
    if alone:
        first, host, port = 0, None, None
    elif not finds_ranks:
        host, port = host or given.get("master-addr", "127.0.0.1"), port or given.get("master-port", "29500")
    meet = {"host": host, "port": port if alone else port or "29400", "alone": alone}
    ranks = [None if first is None else str(first + i) for i in range(each)]
    size = str(each * (1 if alone else int(nodes)))
    made = [
        process("torchrun", program, str(i), each) | {"rank": rank, "size": size} | meet for i, rank in enumerate(ranks)
    ]
    work("torchrun", program, made)


def process(by: str, program: list[str], local_rank: str, among: int = 1) -> dict:
    """A process of the program, one among several of its task. gpu: number LOCAL_RANK among those that it sees."""
    env = os.environ
    visible = dict(enumerate(filter(None, env.get("CUDA_VISIBLE_DEVICES", "").split(","))))
    return {
        "by": by,
        "program": " ".join(program),
        "node": int(env["SLURM_NODEID"]),
        "in step": "PRETEND_STEP" in env,
        "gpu": visible.get(int(local_rank)) if local_rank.isdecimal() else None,
        "cores": int(env.get("SLURM_CPUS_PER_TASK") or 1) // among,
        "threads": env.get("OMP_NUM_THREADS"),
        "alone": False,
    }


def work(command: str, program: list[str], processes: list[dict]) -> None:
    """The training: ends with the status of this run, or waits for USR1, saves for a moment, and ends with 75."""
    note(command, program, processes=processes)
    if "PRETEND_WAITS" in os.environ:
        import signal
        import time

        def save(number: int, frame: object) -> None:
            open(mark("saving"), "w").close()
            time.sleep(0.4)
            open(mark("saved"), "w").close()
            os._exit(75)

        signal.signal(signal.SIGUSR1, save)
        with open(mark("part"), "w") as file:
            file.write(f"{os.getpid()} {os.environ.get('PRETEND_STEP', 0)}")
        os.replace(mark("part"), mark("ready"))
        time.sleep(60)
    status = int(os.environ["PRETEND_STATUS"])
    if status > 128:
        os.kill(os.getpid(), status - 128)
    sys.exit(status)


def hostname(words: list[str]) -> None:
    print(os.environ["SLURMD_NODENAME"])


if __name__ == "__main__":
    command, *words = sys.argv[1:]
    known = {each.__name__: each for each in (srun, scontrol, scancel, python, torchrun, hostname)} | {
        "python3": python
    }
    known.get(command, lambda words: note(command, words))(words)
