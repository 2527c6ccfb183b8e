import io
import os
import shutil
import tempfile
from pathlib import Path

import torch
from support.answers import mutant, mutants

from torchcourse_labs.checkpointing.write_safely import solution

NAME = 'path.with_name(f"{path.name}.{uuid.uuid4()}.part")'
SYNC = "os.fsync(file.fileno())"
RENAME = "os.replace(temporary, path)"
CLEAN = "temporary.unlink(missing_ok=True)"


def from_memory(state, path):
    memory = io.BytesIO()
    torch.save(state, memory)
    number, temporary = tempfile.mkstemp(dir=path.parent)
    try:
        with os.fdopen(number, "wb") as file:
            file.write(memory.getbuffer())
            file.flush()
            os.fsync(file.fileno())
        os.rename(temporary, path)
    except BaseException:
        os.remove(temporary)
        raise
    folder = os.open(path.parent, os.O_RDONLY)
    os.fsync(folder)
    os.close(folder)


def by_name(state, path):
    temporary = Path(f"{path}.{os.getpid()}")
    try:
        torch.save(state, temporary)
        with open(temporary, "rb+") as file:
            os.fsync(file)
        temporary.replace(path)
    except Exception:
        temporary.unlink(missing_ok=True)
        raise


def copied(state, path):
    solution(state, path.with_name("temporary"))
    shutil.copy(path.with_name("temporary"), path)
    path.with_name("temporary").unlink()


RIGHT = [
    from_memory,
    by_name,
    mutant(solution, (NAME, 'path.with_name(f".{os.getpid()}-{path.name}")')),
    mutant(solution, ("file.flush()", "pass"), (SYNC, "pass"), (RENAME, f"os.sync(); {RENAME}")),
]

WRONG = {
    "killed": [
        lambda state, path: torch.save(state, path),
        mutant(solution, ("try:", "path.unlink(missing_ok=True)\n    try:")),
    ],
    "in_place": [copied, *mutants(solution, RENAME, "path.write_bytes(temporary.read_bytes())")],
    "gap": mutants(solution, RENAME, "path.unlink(missing_ok=True); temporary.rename(path)"),
    "other_folder": mutants(solution, NAME, "type(path)(__import__('tempfile').mkdtemp(), path.name)"),
    "shared_name": [
        *mutants(solution, NAME, 'path.with_name(path.name + ".part")'),
        *mutants(solution, CLEAN, "[each.unlink(missing_ok=True) for each in path.parent.glob('*.part')]"),
    ],
    "swallowed": mutants(solution, "finally:", "except Exception:\n        print('not saved')\n    finally:"),
    "lost": [
        mutant(solution, ("finally:", "except BaseException:\n        path.unlink()\n        raise\n    finally:")),
        mutant(solution, (RENAME, "pass"), (CLEAN, "temporary.exists() and os.replace(temporary, path)")),
    ],
    "litter": [
        *mutants(solution, CLEAN, "pass"),
        *mutants(by_name, "except Exception", "except (OSError, RuntimeError)"),
        mutant(by_name, ("        temporary.replace(path)\n", ""), ("raise", "raise\n    temporary.replace(path)")),
    ],
    "not_on_disk": [
        *mutants(solution, SYNC, "pass", "os.fsync(os.open(path.parent, os.O_RDONLY))"),
        *mutants(from_memory, "file.flush()", "pass"),
        mutant(solution, (SYNC, "pass"), (RENAME, f"{RENAME}; os.fsync(os.open(path, os.O_RDWR))")),
    ],
    None: [
        lambda state, path: print("saved"),
        *mutants(solution, RENAME, "pass", "os.link(temporary, path)"),
        *mutants(
            solution,
            "torch.save(state, file)",
            "torch.save(state['weights'], file)",
            "__import__('pickle').dump(state, file)",
        ),
        mutant(solution, (CLEAN, "pass"), (RENAME, "__import__('shutil').copy(temporary, path)")),
    ],
}
