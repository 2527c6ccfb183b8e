import os
import shutil
import subprocess
import time

from support.answers import mutant, mutants

from torchcourse_labs.cluster.stage_once import solution


def by_shell(source, folder):
    target = folder / source.name
    if os.environ["SLURM_LOCALID"] == "0":
        subprocess.run(f"cp {source} {target}.part && mv {target}.part {target}", shell=True, check=True)
    while not target.exists():
        time.sleep(0.02)
    return target


IS_FIRST = 'int(os.environ["SLURM_LOCALID"]) == 0'
PART = '.with_suffix(".part")'
COPY = "shutil.copyfile(source, part)"
RENAME = "os.replace(part, target)"
LOOP = "while not target.exists():\n        time.sleep(0.02)"

RIGHT = [by_shell]

WRONG = {
    "wait_forever": [
        *mutants(solution, IS_FIRST, 'int(os.environ["SLURM_PROCID"]) == 0', 'os.environ["SLURM_LOCALID"] == 0'),
        *mutants(solution, RENAME, "pass"),
    ],
    "grows": [
        *mutants(solution, PART, ""),
        mutant(by_shell, ("{target}.part && mv {target}.part {target}", "{target}")),
        *mutants(solution, f"target{PART}", "Path('/tmp') / f'{source.name}.{os.getpid()}'"),
    ],
    None: [
        mutant(solution, (IS_FIRST, "True"), (PART, '.with_suffix(f".{os.getpid()}")')),
        lambda source, folder: shutil.copy(source, folder),
        *mutants(solution, LOOP, "pass", "time.sleep(4)"),
        *mutants(solution, RENAME, f"{RENAME}; {RENAME}", f"shutil.copy(part, f'{{part}}~'); {RENAME}"),
        *mutants(solution, COPY, "shutil.move(source, part)", "os.link(source, part)"),
        *mutants(solution, "return target", "pass", "return folder"),
        *mutants(solution, "folder / source.name", "folder / 'data.bin'"),
    ],
}
