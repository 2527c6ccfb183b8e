from torchcourse_labs.cluster.repair_job import solution


def changed(*places, text=solution):
    for old, new in places:
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    return text


GPUS, CORES, ONE = "--gpus-per-node=2", "#SBATCH --cpus-per-task=8\n", "--ntasks-per-node=1"
EXPORT, PORT = "export SRUN_CPUS_PER_TASK=$SLURM_CPUS_PER_TASK\n", "--standalone"
TOO_LATE = changed(("--output=", "--output=logs/"), ("set -e", "set -e; mkdir -p logs"))
OF_THE_TASK, FIXED = (GPUS, "--gpus-per-task=1"), (PORT, "--master-port=29500")
GIVEN = changed(OF_THE_TASK, (CORES, ""), FIXED, ("set -e; ", ""), text=TOO_LATE)
WITHOUT_TORCHRUN = """#!/bin/bash -e
#SBATCH -J train -N 1 -n 2 -c 4 --gres=gpu:2 -t 30
export MASTER_ADDR=$(hostname) MASTER_PORT=$((10000 + SLURM_JOB_ID % 20000))
srun -c 4 bash -c 'RANK=$SLURM_PROCID LOCAL_RANK=$SLURM_LOCALID WORLD_SIZE=2 exec python -u train.py'
"""

RIGHT = [
    WITHOUT_TORCHRUN,
    changed((GPUS, "--gpus=2"), (CORES, "#SBATCH --cpus-per-gpu=4\n"), (EXPORT, ""), (PORT, "--rdzv-endpoint=n1:0")),
    changed(("set -e\n", ""), ("train.py\necho", "train.py && echo"), (PORT, "")),
    changed(("srun t", "run() { t"), ("train.py\n", "train.py; }\nexport -f run\nsrun bash -c run\n")),
    changed(
        (GPUS, "--gpus-per-task=2"),
        ("set -e", "mkdir -p results"),
        ("srun torchrun", "torchrun"),
        (PORT, "--master-port=$((20000 + SLURM_JOB_ID % 12000))"),
        ("train.py", "train.py || exit 1"),
    ),
]

WRONG = {
    "folder": [GIVEN, TOO_LATE],
    "gpus": [changed(("logs/", ""), text=GIVEN), changed(OF_THE_TASK), changed((f"#SBATCH {GPUS}\n", ""))],
    "cores": [changed((CORES, "")), changed((EXPORT, "")), changed(("-task=8", "-task=4"))],
    "port": [changed(FIXED), changed((PORT, "--rdzv-backend=c10d --rdzv-endpoint=localhost:29511"))],
    "failure": [changed(("set -e\n", "")), changed(("train.py", "train.py | tee log"))],
    "late": [changed(("#!/bin/bash", "#!/bin/bash\nset -e"))],
    "refused": ["\n" + solution],
    None: [
        changed((ONE, "--ntasks-per-node=2")),
        changed(OF_THE_TASK, (ONE, "--ntasks-per-node=2"), ("=2 --", "=1 --"), ("=8", "=4")),
        *(changed(each) for each in (("s=1", "s=2"), (GPUS, "--gpus-per-node=4"), ("=8", "=64"), ("S=4", "S=8"))),
        *(changed(each) for each in (("srun t", "srum t"), (PORT, "--master-port=$SLURM_JOB_ID"), ("%x-%j", "log"))),
        solution.splitlines(),
    ],
}
