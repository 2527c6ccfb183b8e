import os
import shutil
import subprocess
import tempfile
import time

from support.answers import mutant, mutants

from torchcourse_labs.cluster.stage_once import solution


def by_bytes(source, folder):
    target = os.path.join(folder, source.name)
    if os.environ.get("SLURM_LOCALID") == "0":
        with open(source, "rb") as file, open(target + "~", "wb") as copy:
            copy.write(file.read())
        os.rename(target + "~", target)
    else:
        while not os.path.isfile(target):
            pass
    return target


def in_a_folder_within(source, folder):
    target = folder / source.name
    if os.environ["SLURM_LOCALID"] == "0":
        with tempfile.TemporaryDirectory(dir=folder) as work:
            os.replace(shutil.copy(source, work), target)
    while not target.exists():
        time.sleep(1.5)
    return target


def by_shell(source, folder):
    target = folder / source.name
    if os.environ["SLURM_LOCALID"] == "0":
        subprocess.run(f"cp {source} {target}.part && mv {target}.part {target}", shell=True, check=True)
    while not target.exists():
        time.sleep(0.02)
    return target


IS_FIRST = 'int(os.environ["SLURM_LOCALID"]) == 0'
PART = '.with_suffix(".part")'
OWN_PART = '.with_suffix(f".{os.getpid()}")'
COPY = "shutil.copyfile(source, part)"
RENAME = "os.replace(part, target)"
LOOP = "while not target.exists():\n        time.sleep(0.02)"

RIGHT = [by_bytes, in_a_folder_within, by_shell]

WRONG = {
    "gone": mutants(solution, RENAME, f"{RENAME}; {RENAME}") + mutants(solution, COPY, "shutil.move(source, part)"),
    "one_task": mutants(solution, IS_FIRST, 'int(os.environ["SLURM_PROCID"]) == 0'),
    "every_task": [
        mutant(solution, (IS_FIRST, "True"), (PART, OWN_PART)),
        mutant(solution, (IS_FIRST, "not target.exists()"), (PART, OWN_PART)),
        lambda source, folder: shutil.copy(source, folder),
    ],
    "in_place": [
        *mutants(solution, PART, ""),
        mutant(solution, (COPY, "target.write_bytes(source.read_bytes())"), (RENAME, "pass")),
        mutant(by_shell, ("{target}.part && mv {target}.part {target}", "{target}")),
    ],
    "elsewhere": mutants(solution, f"target{PART}", "Path('/tmp') / f'{source.name}.{os.getpid()}'"),
    "too_early": [
        *mutants(solution, LOOP, "pass", "time.sleep(4)"),
        *mutants(solution, "while not target", "if not target", "while not part.exists() and not target"),
    ],
    None: [
        *mutants(solution, IS_FIRST, 'os.environ["SLURM_LOCALID"] == 0'),
        *mutants(solution, RENAME, "pass", "shutil.copyfile(part, f'{target}~'); os.replace(f'{target}~', target)"),
        mutant(solution, (IS_FIRST, 'os.environ["SLURM_PROCID"] == "0"'), (LOOP, "pass")),
        *mutants(solution, COPY, "os.symlink(source, part)"),
        *mutants(solution, "return target", "pass", "return folder", "return source"),
        *mutants(solution, "folder / source.name", "folder / 'data.bin'"),
    ],
}
