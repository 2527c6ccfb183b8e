import io
import os
import pickle
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
            os.fsync(file)
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
        os.sync()
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


RIGHT = [from_memory, by_name]

WRONG = {
    "in_place": [
        lambda state, path: torch.save(state, path),
        lambda state, path: solution(state, path.with_name("whole")) or shutil.copy(path.with_name("whole"), path),
        *mutants(solution, RENAME, "path.unlink(missing_ok=True); temporary.rename(path)"),
    ],
    "other_folder": mutants(by_name, 'Path(f"{path}.{os.getpid()}")', "Path(tempfile.mkdtemp()) / path.name"),
    "not_on_disk": [
        *mutants(solution, SYNC, "pass"),
        *mutants(from_memory, "file.flush()", "pass"),
        mutant(solution, (SYNC, "pass"), (RENAME, f"{RENAME}; os.fsync(os.open(path, os.O_RDWR))")),
    ],
    "shared_name": [
        *mutants(solution, NAME, 'path.with_name(path.name + ".part")'),
        *mutants(solution, CLEAN, "[each.unlink() for each in path.parent.glob('*.part')]"),
        *mutants(by_name, "temporary.unlink(missing_ok=True)", "[each.unlink() for each in path.parent.glob('*.tmp')]"),
    ],
    "swallowed": mutants(by_name, "raise", "print('not saved')"),
    "litter": [
        *mutants(solution, CLEAN, "pass"),
        *mutants(by_name, "except BaseException", "except (OSError, RuntimeError)", "except Exception"),
        mutant(by_name, ("        temporary.replace(path)\n", ""), ("raise", "raise\n    temporary.replace(path)")),
    ],
    None: [
        lambda state, path: path.write_bytes(pickle.dumps(state)),
        *mutants(solution, "torch.save(state, file)", "torch.save(state['weights'], file)"),
        *mutants(by_name, "temporary.unlink", "path.unlink"),
        mutant(solution, (RENAME, "pass"), (CLEAN, RENAME)),
    ],
}
