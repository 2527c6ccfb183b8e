"""Load a data set, and say which ones are where."""

import os
from pathlib import Path

import torch

from torchcourse.data import banner, download, files
from torchcourse.data.catalog import SPECS, SPLITS, check_split, spec
from torchcourse.data.folder import from_folder
from torchcourse.data.imageset import ImageSet
from torchcourse.errors import CourseError
from torchcourse.place import root_folder

_gave_up: str | None = None  # why the last download failed: one attempt per process, not one per call


def load(name: str, split: str, root: str | os.PathLike | None = None) -> ImageSet:
    """One split of a data set.

    name: "mnist", "fashion_mnist" or "cifar10", or a folder of your own (see `from_folder`); split: "train" or "test".
    root: the folder that holds the data; without it the environment variable TORCHCOURSE_DATA, else the user's cache
    folder.

    The result says in `origin` whether it is "real" or "synthetic". Files that are there but damaged raise CourseError,
    which names the file and the command that fixes it: they are never quietly replaced by the synthetic set.
    """
    if str(name) not in SPECS and Path(name).is_dir():
        return from_folder(name, split)
    what, folder = spec(name), root_folder(root)
    check_split(split)
    download.sweep(name, folder)
    tensors = files.find(name, split, folder)
    if tensors is None:
        reason = _try_to_fetch(name, folder)
        tensors = files.find(name, split, folder) if reason is None else None
        if tensors is None:
            banner.show(name, reason or "the download left nothing", folder)
            return _synthetic(name, split)
    return ImageSet(*tensors, what.classes, name, "real")


def _try_to_fetch(name: str, folder: Path) -> str | None:
    """None if the data set is there now, else the reason why not."""
    global _gave_up
    if download.offline():
        return "TORCHCOURSE_OFFLINE is set"
    if _gave_up is None:
        try:
            download.fetch(name, folder)
        except download.NoDownload as error:
            _gave_up = error.reason
    return _gave_up


def _synthetic(name: str, split: str) -> ImageSet:
    from torchcourse.data import synthetic

    images, labels = synthetic.draw(name, split)
    return ImageSet(torch.from_numpy(images), torch.from_numpy(labels), spec(name).classes, name, "synthetic")


def overview(root: str | os.PathLike | None = None) -> list[dict]:
    """What is where: one dict per data set and split: name, split, count, origin, bytes, where, problem (or None).

    origin: "kit cache", "torchvision files", "broken", or "synthetic" where there are no files.
    """
    from torchcourse.data import synthetic

    folder = root_folder(root)
    rows = []
    for name, what in SPECS.items():
        for split in SPLITS:
            row = {"name": name, "split": split, "count": synthetic.COUNTS[split], "origin": "synthetic", "bytes": 0}
            row |= {"where": "built into the course", "problem": None}
            source = None
            try:
                source = files.locate(name, split, folder)
                if files.find(name, split, folder) is not None:
                    row["count"] = what.counts[split]
                    row["origin"] = "kit cache" if source.form == "cache" else "torchvision files"
            except CourseError as error:
                where = str(getattr(error, "path", folder))
                row |= {"count": 0, "origin": "broken", "where": where, "problem": str(error)}
            if source is not None:
                row["bytes"] = source.size
                if row["problem"] is None:
                    row["where"] = str(source.paths[0] if source.form == "cache" else source.paths[0].parent)
            rows.append(row)
    return rows
