"""Ten last words of jobs that died, and what to do first: the action that removes the cause, or finds it."""

from typing import Any

from labcheck.authoring import Exercise, Incorrect, Inputs, attempted, observe, wrong_if

LETTERS = "ABCDEFGHIJKLMNOPQR"

solution = {
    "kernel image": "H",
    "oom-kill": "C",
    "quota": "K",
    "modules": "A",
    "other torch": "M",
    "collective timeout": "B",
    "mismatch": "D",
    "time limit": "P",
    "bus error": "F",
    "address in use": "Q",
}

WHY = {
    "kernel image": "This PyTorch has no compiled code for this kind of GPU; the first line says which kinds it "
    "knows. A newer PyTorch may be what dropped it.",
    "oom-kill": "Slurm ended the job because it used more of the node's own memory than it asked for. That is "
    "neither the memory of the GPU nor /dev/shm, and a batch is a small part of it.",
    "quota": "Your home has no room left, and the path in the message says that a cache fills it.",
    "modules": "Loading the second module exchanged the compiler of the first, so the C++ library that is in use now "
    "is too old. PyTorch is not the problem.",
    "other torch": "The version and the path say which PyTorch this is: a CPU-only build (+cpu), which came "
    "along with another package and hides the site's own.",
    "collective timeout": "Rank 3 waited ten minutes in an all-reduce that some other rank never entered: waiting "
    "longer would not help. The network had carried 41,000 collectives before, and no rank called another one.",
    "mismatch": "All ranks came, at the same time, but they called different collectives. A barrier would be one "
    "more collective to disagree about.",
    "time limit": "Slurm ended the job at its limit, and what had not been saved is gone. With the longest limit you "
    "wait longest in the queue, and the next training takes longer still.",
    "bus error": "Loader workers hand their batches over in shared memory, /dev/shm, a small space of its own that "
    "is full. The job's `--mem` is another limit, and a smaller batch helps for a day.",
    "address in use": "Another process on this node has taken the port already. It may well be someone else's job, "
    "and tomorrow there is another one.",
}


def judge(answer: Any, rng: Inputs) -> None:
    given = observe(answer, attempted)
    if not isinstance(given, dict):
        keys = "`first_thing`, the dictionary with its ten keys"
        raise Incorrect("Your answer is not a dictionary.", "a letter for each job", given, keys)
    for job, right in solution.items():
        letter = given.get(job)
        if not isinstance(letter, str) or letter.strip().upper() not in [*LETTERS]:
            raise Incorrect(f'"{job}" needs one letter of the second table.', 'a letter, such as "A"', letter)
        letter = letter.strip().upper()
        wrong_if(letter != right, "another_first", f'"{job}": {letter} is not what to do first. {WHY[job]}')


exercise = Exercise(
    title="Reading error messages",
    minutes=8,
    difficulty=2,
    points=2,
    takeaway="Read the first line that is not yours, and ask which resource it names: memory of the node or of the "
    "GPU, a disk, a port, time, or another rank.",
    hints=(
        "First find out who speaks: Slurm (slurmstepd), the operating system (Errno), a library, or PyTorch. Then what "
        "ran out, or who was missing. Node memory, GPU memory and /dev/shm are three different things.",
        "Of two cures that might help, take the one that removes the cause: more time, more memory, a newer version "
        "or a barrier often only move it.",
    ),
    judge=judge,
)
