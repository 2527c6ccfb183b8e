"""The disk: which folders are writable, how much room is left, and whether the data sets are complete."""

from __future__ import annotations

import errno
import os
import shutil
import tempfile
import time
from pathlib import Path

from torchcourse import data, place
from torchcourse.commands.doctor.finding import Answer, shown
from torchcourse.data import download, files
from torchcourse.errors import CourseError

ROOMY = 1e9  # bytes: all data sets of the course, downloaded and unpacked, take about half of it
LITTLE = 200e6  # bytes: notebooks, checkpoints and what pip needs on the way
TRIAL = 32 * 2**20  # bytes reserved for a moment, to meet a quota, which the free space of a disk does not show
SKEW = 60  # seconds
IN_THE_WAY = {  # how a download's reason begins -> what to do
    "Python does not trust": "Set SSL_CERT_FILE to a file that has the certificate of your network's proxy",
    "the proxy": "Set it to http://HOST:PORT, or to http://NAME:PASSWORD@HOST:PORT",
    "the server": "If this network blocks it, bring the files by hand",
    "no network": "If a browser gets out, set https_proxy to this network's proxy; if not, bring the files by hand",
}


def places() -> dict[str, Path]:
    """Where a student's work ends up: name -> folder."""
    return {
        "working folder": Path.cwd(),
        "home folder": place.home(),
        "temporary folder": Path(tempfile.gettempdir()),
    }


def permission() -> Answer:
    """Are the working folder, the home folder, and the folder of temporary files writable?"""
    late = 0.0
    refused = []
    for name, folder in places().items():
        try:
            with tempfile.NamedTemporaryFile(dir=folder, prefix=".doctor-") as file:
                file.write(b"a line\n")
                file.flush()
                late = max(late, os.stat(file.name).st_mtime - time.time())
        except OSError as error:
            refused.append(f"{name} {shown(folder)} ({error.strerror})")
    if refused:
        fix = "Work in a copy of the course in a folder of your own; TMPDIR names another place for temporary files."
        return False, f"cannot write to: {', '.join(refused)}", fix
    if late > SKEW:
        found = f"writable, but new files are dated {late:.0f} s in the future"
        return None, found, "The clocks of this machine and of its file server differ: tell their administrator."
    return True, f"{', '.join(places())}: writable", ""


def disk() -> Answer:
    """Is there room for notebooks and checkpoints, and does a quota let one use it?"""
    free, full = {}, {}
    for name, folder in places().items():
        free[name] = shutil.disk_usage(folder).free
        problem = _reserve(folder)
        if problem:
            full[name] = problem
        elif free[name] < LITTLE:
            full[name] = f"{free[name] / 1e6:.0f} MB free"
    if full:
        found = ", ".join(f"{name}: {problem}" for name, problem in full.items())
        return False, found, "Delete what you no longer need: `du -sh ~/* ~/.cache` shows where the room went."
    least = min(free, key=free.get)
    return True, f"{free[least] / 1e9:.0f} GB free in the {least}", ""


def _reserve(folder: Path) -> str:
    """Why a file of some size cannot be made in the folder; "" if it can, or if it is not known."""
    if not hasattr(os, "posix_fallocate") or not os.access(folder, os.W_OK):
        return ""
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            os.posix_fallocate(file.fileno(), 0, TRIAL)
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            return error.strerror
    return ""


def data_folder() -> Answer:
    """May data be read, and new ones be written?"""
    root = data.root_folder()
    existing = next(folder for folder in (root, *root.parents) if folder.exists())
    where = shown(root)
    if not existing.is_dir():
        return False, f"{where} is a file, not a folder", "Set TORCHCOURSE_DATA to a folder."
    if not os.access(existing, os.W_OK):
        if all(files.locate(name, split, root) for name in data.NAMES for split in data.SPLITS):
            return True, f"{where}: read-only, and all data sets are in it", ""
        fix = "Set TORCHCOURSE_DATA to a folder that you may write to, or ask the owner of this one."
        return None, f"{where}: read-only, and not all data sets are in it", fix
    free = shutil.disk_usage(existing).free
    found = f"{where}: writable, {free / 1e9:.0f} GB free"
    if free < ROOMY:
        return None, found, "Set TORCHCOURSE_DATA to a folder on a disk with more room before you download."
    return True, found, ""


def data_sets() -> Answer:
    """Which data sets are there, and is each image and label of them what it should be?"""
    root = data.root_folder()
    real, absent = [], []
    for name in data.NAMES:
        for split in data.SPLITS:
            try:
                tensors = files.find(name, split, root)
            except CourseError as error:
                return False, f"{name} is damaged", str(error)
            if tensors is None:
                absent.append(name)
                break
        else:
            real.append(name)
    if not absent:
        return True, f"real and whole: {', '.join(real)}", ""
    found = f"not here yet: {', '.join(absent)}" + (f"; real and whole: {', '.join(real)}" if real else "")
    reason = None if download.offline() else download.why_unreachable(absent[0])
    fix = f"`torchcourse data fetch {absent[0]}` gets it where there is a network."
    if reason:
        found += f"; {reason}"
        todo = next(todo for begins, todo in IN_THE_WAY.items() if reason.startswith(begins))
        fix = f"{todo}: docs/troubleshooting.md says how."
    return None, found, f"{fix} Without it, the course uses synthetic look-alikes."
