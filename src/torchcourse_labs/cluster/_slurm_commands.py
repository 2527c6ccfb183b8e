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
    """A file beside the list of calls: "step" (the number of the program in a step), "saving", or "saved"."""
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
                **dict.fromkeys(("SLURM_NTASKS", "SLURM_NPROCS"), total),
                "SLURM_NNODES": len(hosts),
                "SLURM_CPUS_PER_TASK": cores,
                **dict.fromkeys(("SLURMD_NODENAME", "HOSTNAME"), host),
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
    """With a signal, it sends this to the step of the job, not to its script."""
    asked = " ".join(words).replace("=", " ").replace("SIG", "") + " "
    if ("--signal USR1 " in asked or "-s USR1 " in asked) and os.path.exists(mark("step")):
        import signal

        with open(mark("step")) as file:
            os.kill(int(file.read()), signal.SIGUSR1)


def python(words: list[str]) -> None:
    if words[:2] == ["-m", "torch.distributed.run"]:
        torchrun(words[2:])
    program = list(words)
    while program and program[0] in ("-u", "-O", "-B", "-I", "-E", "-s"):
        program.pop(0)
    if not program or program[0].startswith("-"):
        os.execv(sys.executable, [sys.executable, *words])
    keys = {"rank": "RANK", "size": "WORLD_SIZE", "host": "MASTER_ADDR", "port": "MASTER_PORT"}
    meets = {key: os.environ.get(name) for key, name in keys.items()}
    work("python", program, [process("python", os.environ.get("LOCAL_RANK", "")) | meets])


def torchrun(words: list[str]) -> None:
    """Starts as many processes as it is told to. rank: None if the torchruns agree on the ranks by themselves."""
    given, program = options(words)
    each, nodes = given.get("nproc-per-node", "1"), given.get("nnodes", "1").rpartition(":")[2]
    each = os.environ.get("SLURM_GPUS_ON_NODE", "1") if each in ("gpu", "auto") else each
    each, nodes = (int(text) if text.isdigit() else 1 for text in (each, nodes))
    host, _, port = given.get("rdzv-endpoint", "").partition(":")
    number = given.get("node-rank", "")
    first = each * int(number) if number.isdigit() else 0
    meeting = given.get("rdzv-backend", "static") != "static"
    if nodes == 1 or "standalone" in given:  # without a port, it finds a free one
        port = port or ("29400" if meeting else given.get("master-port"))
        nodes, first, host, port = 1, 0, None, None if "standalone" in given or port == "0" else port
    elif meeting:
        first, port = None, port or "29400"
    else:
        host, port = host or given.get("master-addr", "127.0.0.1"), port or given.get("master-port", "29500")
    meets = {"size": str(each * nodes), "host": host, "port": port}
    ranks = [None if first is None else str(first + i) for i in range(each)]
    made = [process("torchrun", str(i), each) | {"rank": rank} | meets for i, rank in enumerate(ranks)]
    work("torchrun", program, made)


def process(by: str, local_rank: str, among: int = 1) -> dict:
    """A process of the program, one among several of its task. gpu: number LOCAL_RANK among those that it sees."""
    env = os.environ
    visible = dict(enumerate(filter(None, env.get("CUDA_VISIBLE_DEVICES", "").split(","))))
    return {
        "by": by,
        "node": int(env["SLURM_NODEID"]),
        "in step": "PRETEND_STEP" in env,
        "gpu": visible.get(int(local_rank)) if local_rank.isdecimal() else None,
        "cores": int(env.get("SLURM_CPUS_PER_TASK" if "PRETEND_STEP" in env else "SLURM_CPUS_ON_NODE") or 1) // among,
        "threads": env.get("OMP_NUM_THREADS"),
    }


def work(command: str, program: list[str], processes: list[dict]) -> None:
    """The training: ends with the status of this run, or when it has got the signal of `--signal`."""
    note(command, program, processes=processes)
    if "PRETEND_SIGNAL" in os.environ:
        get_signal(os.environ["PRETEND_SIGNAL"])
    status = int(os.environ["PRETEND_STATUS"])
    if status > 128:
        os.kill(os.getpid(), status - 128)
    sys.exit(status)


def get_signal(asked: str) -> None:
    """Slurm sends USR1 to the program of a step, or with B: to the script alone, which may pass it on. The program that
    gets it saves for a moment and ends with 75; otherwise, the time is up, and the whole job ends.
    """
    import signal
    import time

    def save(number: int, frame: object) -> None:
        open(mark("saving"), "w").close()
        time.sleep(0.4)
        open(mark("saved"), "w").close()
        os._exit(75)

    signal.signal(signal.SIGUSR1, save)
    script, in_step = os.getsid(0), "PRETEND_STEP" in os.environ
    if in_step:
        with open(mark("step"), "w") as file:
            file.write(str(os.getpid()))
    if "B" in asked.partition(":")[0]:
        time.sleep(0.3)  # the script goes on while its program starts; by now it has come to its `wait`
        os.kill(script, signal.SIGUSR1)
        for _ in range(1000):  # counted: while the whole machine stands still, no time passes here either
            time.sleep(0.005)
    elif in_step:
        os.kill(os.getpid(), signal.SIGUSR1)
    os.killpg(script, signal.SIGKILL)


def hostname(words: list[str]) -> None:
    print(os.environ["SLURMD_NODENAME"])


if __name__ == "__main__":
    command, *words = sys.argv[1:]
    known = {each.__name__: each for each in (srun, scontrol, scancel, python, torchrun, hostname)}
    known.get(command.rstrip("3"), lambda words: note(command, words))(words)
