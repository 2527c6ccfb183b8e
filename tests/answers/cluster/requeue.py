from support.answers import mutant, mutants

from torchcourse_labs.cluster.requeue import solution


def with_trap(program, seconds, most):
    return f"""#!/bin/bash
#SBATCH --requeue --open-mode append
#SBATCH --signal=B:USR1@{seconds}
trap 'kill -USR1 $task' USR1
python {program} &
task=$!
wait $task; wait $task
status=$?
case $status in
75) if (( ${{SLURM_RESTART_COUNT:-0}} < {most} )); then scontrol requeue "$SLURM_JOB_ID"; fi ;;
esac
exit $status
"""


WAITS = "wait $task; wait $task"
REQUEUE = "scontrol requeue $SLURM_JOB_ID"

RIGHT = [
    with_trap,
    mutant(
        solution,
        ("=USR1", "=SIGUSR1"),
        (" || status=$?", "\nstatus=$?"),
        ("if [ $status -eq 75 ] && [", "if [[ $status == 75 &&"),
        ("{most} ]", "{most} ]]"),
    ),
    mutant(
        with_trap,
        ("python {program} &", "srun --kill-on-bad-exit=0 --wait=60 python {program} &"),
        ("kill -USR1 $task", "scancel --signal=USR1 $SLURM_JOB_ID"),
        (WAITS, "while kill -0 $task 2> /dev/null; do wait $task; status=$?; done"),
        ("status=$?\n", ""),
    ),
]

WRONG = {
    "refused": [lambda *request: "\n" + solution(*request)],
    "late": mutants(solution, "#!/bin/bash", "#!/bin/bash\nset -u"),
    "not_saved": [
        *mutants(with_trap, "kill -USR1 $task", f"{REQUEUE}; exit", "kill -USR1 $task; exit 75"),
        *mutants(with_trap, WAITS, "wait $task"),
    ],
    "signal_lost": [
        *mutants(solution, "srun python", "python"),
        *mutants(solution, "USR1@{seconds}", "B:USR1@{seconds}"),
        *mutants(with_trap, "trap 'kill -USR1 $task' USR1", "trap : USR1"),
        mutant(with_trap, ("python {program} &\ntask=$!", "python {program}"), (WAITS, "")),
    ],
    "not_requeued": [
        *mutants(solution, "-eq 75", "-eq 138"),
        *mutants(solution, "-lt {most}", "< {most}"),
        *mutants(solution, "${{SLURM_RESTART_COUNT:-0}}", "$SLURM_RESTART_COUNT"),
        *mutants(solution, " || status=$?", " | tee -a log; status=$?"),
        *mutants(solution, REQUEUE, "scontrol release $SLURM_JOB_ID", "sbatch $0"),
        mutant(solution, ("status=0", "set -e"), (" || status=$?", "; status=$?")),
    ],
    "after_other_ends": mutants(solution, "-eq 75", "-ne 0", "-ge 75", "-le 75"),
    "after_requeue": mutants(solution, REQUEUE, f"{REQUEUE}; cp -r results saved"),
    "status_lost": mutants(solution, "exit $status\n", "", "exit 0\n"),
    None: [
        *mutants(solution, REQUEUE, "srun python {program}", "scontrol requeue 4711"),
        *mutants(solution, "USR1@{seconds}", "USR1", "TERM@{seconds}"),
        *mutants(solution, "-lt {most}", "-le {most}", "-lt $(({most} - 1))", "> 0"),
        *mutants(solution, "#SBATCH --open-mode=append\n", ""),
        *mutants(solution, "#SBATCH --requeue\n", ""),
    ],
}
