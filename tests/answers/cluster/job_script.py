from support.answers import mutant, mutants

from torchcourse_labs.cluster.job_script import solution


def with_srun(program, name, nodes, gpus, cores, minutes):
    return f"""#!/bin/bash
#SBATCH -J {name}
#SBATCH -N {nodes} --ntasks-per-node={gpus} -c {cores}
#SBATCH --gres=gpu:{gpus}
#SBATCH --time={minutes // 1440}-{minutes // 60 % 24:02}:{minutes % 60:02}:00
#SBATCH -o {name}.%j.log

set -euo pipefail
export OMP_NUM_THREADS="$SLURM_CPUS_PER_TASK"
MASTER_ADDR=$(scontrol show hostnames | sed -n 1p)
MASTER_PORT=$((10000 + ${{SLURM_JOB_ID}} % 20000))
export MASTER_ADDR MASTER_PORT
srun --cpus-per-task=$SLURM_CPUS_PER_TASK bash -c \\
    'RANK=$SLURM_PROCID LOCAL_RANK=$SLURM_LOCALID WORLD_SIZE=$SLURM_NTASKS exec python -u {program}'
"""


def with_node_rank(program, name, nodes, gpus, cores, minutes):
    return f"""#!/usr/bin/env bash
#SBATCH --job-name {name}
#SBATCH --nodes={nodes} --ntasks={nodes}
#SBATCH --gpus={nodes * gpus}
#SBATCH --cpus-per-task={gpus * cores}
#SBATCH --time={minutes // 60}:{minutes % 60:02}:00
head=($(scontrol show hostnames $SLURM_JOB_NODELIST))
export OMP_NUM_THREADS=$((SLURM_CPUS_PER_TASK / {gpus}))
export PORT=$((29500 + SLURM_JOB_ID % 1000)) HEAD=${{head[0]}}
srun -c $SLURM_CPUS_PER_TASK bash -c 'python -m torch.distributed.run --nnodes {nodes} --nproc_per_node {gpus} \\
    --node_rank $SLURM_NODEID --master_addr $HEAD --master_port $PORT {program}'
exit $?
"""


PORT = "$((20000 + SLURM_JOB_ID % 12000))"
CORES_OF_SRUN = "export SRUN_CPUS_PER_TASK=$SLURM_CPUS_PER_TASK\n"
END = ' {program}\n"""'

RIGHT = [
    with_srun,
    with_node_rank,
    mutant(
        solution,
        ("set -e\n", "set -e\ncd $SLURM_SUBMIT_DIR\nmodule load cuda\nnvidia-smi\n"),
        ("--cpus-per-task={gpus * cores}", "--cpus-per-gpu={cores}"),
        ("--nproc-per-node={gpus}", "--nproc-per-node=gpu"),
        (CORES_OF_SRUN, ""),
    ),
    mutant(with_srun, ("--gres=gpu:{gpus}", "--gpus-per-task=1"), ("LOCAL_RANK=$SLURM_LOCALID", "LOCAL_RANK=0")),
]

WRONG = {
    "refused": [lambda *request: "\n" + solution(*request)],
    "late": [mutant(solution, ("#SBATCH --job", "set -e\n#SBATCH --job"))],
    "not_expanded": mutants(solution, "--nodes={nodes}", "--nodes=$NODES", "--nodes={{nodes}}"),
    "no_srun": mutants(solution, "srun torchrun", "torchrun"),
    "meeting_place": mutants(solution, "$head:", "localhost:", "$SLURM_JOB_NODELIST:"),
    "ranks": [
        *mutants(solution, "--nnodes=$SLURM_NNODES", "", "--standalone"),
        *mutants(solution, "--rdzv-backend=c10d", ""),
        lambda *request: with_srun(*request).replace("'", '"'),
        *mutants(with_srun, "WORLD_SIZE=$SLURM_NTASKS", ""),
    ],
    "same_port": mutants(solution, PORT, "29500"),
    "srun_cores": mutants(solution, CORES_OF_SRUN, ""),
    "failure_lost": mutants(solution, END, ' {program} | tee log\n"""', ' {program} &\nwait\n"""'),
    None: [
        lambda *request: solution(*request).splitlines(),
        *mutants(solution, END, ' "{program}"\n"""'),
        mutant(solution, ("--ntasks-per-node=1", "--ntasks-per-node={gpus}"), ("{gpus * cores}", "{cores}")),
        *mutants(with_srun, "LOCAL_RANK=$SLURM_LOCALID", "LOCAL_RANK=0", "LOCAL_RANK=$SLURM_PROCID"),
        *mutants(solution, "--time={minutes}", "--time=00:{minutes}", "--time=tomorrow"),
        *mutants(solution, "srun torchrun", "srun torchrum", "exit 0\nsrun torchrun"),
        *mutants(with_srun, "export MASTER_ADDR MASTER_PORT", "", "export MASTER_ADDR"),
        *mutants(solution, " | head -n 1", ""),
        *mutants(solution, PORT, "%j", "$((90000 + SLURM_JOB_ID))", "$((20000 + SLURM_JOB_ID % 20000))"),
        *mutants(solution, "export OMP_NUM_THREADS={cores}", "OMP_NUM_THREADS={cores}"),
    ],
}
