import os
import tempfile

import torch
import torch.distributed as dist
from support.answers import mutant, mutants

from torchcourse_labs.ddp.save_from_main import resume, save_from_main

MAIN, SAVED, REPLACED = "dist.get_rank() == 0", "torch.save(state, temporary)", "os.replace(temporary, path)"
MODEL, BARRIER, NAMED = "model.module.state_dict()", "    dist.barrier()", 'path.with_suffix(".tmp")'
IN_FOLDER = "path.parent / 'new' / path.name; temporary.parent.mkdir()"
LOADED, OPTIMIZER = 'model.load_state_dict(state["model"])', 'optimizer.load_state_dict(state["optimizer"])'


def saving(old, *new):
    return [(save, resume) for save in mutants(save_from_main, old, *new)]


def resuming(old, *new):
    return [(save_from_main, each) for each in mutants(resume, old, *new)]


def save_by_a_named_file(path, model, optimizer, epoch):
    if dist.get_rank() == 0:
        with tempfile.NamedTemporaryFile(dir=path.parent, prefix=path.stem, delete=False) as file:
            torch.save([model.module.state_dict(), optimizer.state_dict(), epoch], file)
        os.rename(file.name, path)
    dist.broadcast_object_list([None])


def resume_by_broadcast(path, model, optimizer, device):
    box = [torch.load(path, "cpu") if dist.get_rank() == 0 else None]
    dist.broadcast_object_list(box, src=0)
    model.load_state_dict(box[0][0])
    optimizer.load_state_dict(box[0][1])
    return box[0][2]


RIGHT = [
    (save_by_a_named_file, resume_by_broadcast),
    (mutant(save_from_main, (NAMED, IN_FOLDER), (REPLACED, f"{REPLACED}; temporary.parent.rmdir()")), resume),
    *saving(SAVED, "file = open(temporary, 'wb'); torch.save(state, file); file.close()"),
    *resuming("map_location=device, weights_only=True", "device"),
]

WRONG = {
    "deadlock": saving(BARRIER, f"    {BARRIER}", "    if dist.get_rank(): return\n    dist.barrier()"),
    "whole_objects": [*saving(MODEL, "model.module"), *saving("optimizer.state_dict()", "optimizer")],
    "names": [*saving(MODEL, "model.state_dict()"), *resuming(LOADED, "model.load_state_dict(state)")],
    "rank_1_writes": saving(MAIN, "dist.get_rank() == 1", "True"),
    "not_atomic": [
        (mutant(save_from_main, (NAMED, "path"), (REPLACED, "pass")), resume),
        *saving(REPLACED, "path.unlink(missing_ok=True); temporary.rename(path)"),
        *saving(NAMED, "Path('checkpoint.tmp')"),
    ],
    "no_wait": [
        *saving(BARRIER, "    pass"),
        (mutant(save_from_main, (BARRIER, "    pass")), mutant(resume, ("return", "dist.barrier(); return"))),
    ],
    None: [
        *resuming("weights_only=True", "weights_only=False"),
        *resuming(", map_location=device", ""),
        *saving(REPLACED, "pass", f"{REPLACED}; temporary.touch()", "os.replace(temporary, path.name)"),
        *resuming(OPTIMIZER, "pass"),
        *resuming(LOADED, f"if {MAIN}: {LOADED}"),
    ],
}
