"""The disk: where one may write, how much room is left, and whether the data sets are there and whole."""

from __future__ import annotations

import errno
import os
import shutil
import tempfile
import time
import zlib
from pathlib import Path

import torch

from torchcourse import data
from torchcourse.data import files
from torchcourse.doctor.finding import Answer, shown
from torchcourse.errors import CourseError

ROOMY = 1e9  # bytes: all data sets of the course, downloaded and unpacked, take about half of it
LITTLE = 200e6  # bytes: notebooks, checkpoints and what pip needs on the way
TRIAL = 32 * 2**20  # bytes reserved for a moment, to meet a quota, which the free space of a disk does not show
SKEW = 60  # seconds

# CRC-32 of images (None: not compared) and labels, as uint8. CIFAR-10 has none for its images: copies go around that
# were decoded from JPEG; their labels are the same and their pixels nearly so.
CHECKSUMS = {
    ("mnist", "train"): (0xF3639B56, 0xBA07E8EF),
    ("mnist", "test"): (0xE4CA5F57, 0xEE8604D9),
    ("fashion_mnist", "train"): (0xAE65DCCD, 0x2ED6E46A),
    ("fashion_mnist", "test"): (0x12728439, 0x242BC73F),
    ("cifar10", "train"): (None, 0x4EE6AC62),
    ("cifar10", "test"): (None, 0xBADA58C9),
}


def places() -> dict[str, Path]:
    """Where a student's work ends up: name -> folder."""
    return {
        "working folder": Path.cwd(),
        "home folder": Path.home(),
        "temporary folder": Path(tempfile.gettempdir()),
    }


def permission() -> Answer:
    """May one write in the working folder, at home, and where temporary files go?"""
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
        return None, found, "The clocks of this machine and of its file server differ: tell whoever keeps them."
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
        fix = "Set TORCHCOURSE_DATA to a folder that you may write to, or ask whoever keeps this one."
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
            problem = _differs(name, split, *tensors)
            if problem:
                return False, f"{name}, {split}: {problem}", f"Run `torchcourse data fetch {name} --force`."
        else:
            real.append(name)
    if not absent:
        return True, f"real and whole: {', '.join(real)}", ""
    found = f"not here yet: {', '.join(absent)}" + (f"; real and whole: {', '.join(real)}" if real else "")
    fix = (
        f"`torchcourse data fetch {absent[0]}` gets it where there is a network; without one, drawn look-alikes serve."
    )
    return None, found, fix


def _differs(name: str, split: str, images: torch.Tensor, labels: torch.Tensor) -> str:
    """What is wrong with a set whose files look right; "" if nothing is."""
    images_sum, labels_sum = CHECKSUMS[name, split]
    if zlib.crc32(labels.byte().numpy()) != labels_sum:
        return "labels that are not those of the data set"
    flat = images.flatten(1)
    if images_sum is None:  # then look for what a copy that was broken off leaves: images of one color
        return "images without content" if (flat.amax(1) == flat.amin(1)).any() else ""
    return "" if zlib.crc32(images.contiguous().numpy()) == images_sum else "images that are not those of the data set"
