"""What travels to a machine without network: Python packages as wheels, and the data sets, in parts if they are large.

python -m tools.gpu pack-data build/data-parts        here: parts of at most 40 MiB, from TORCHCOURSE_DATA
python -m tools.gpu --data build/data-parts           there, when all parts have arrived in one folder
"""

import hashlib
import io
import os
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path

PARTS = "data.tar.xz."  # data.tar.xz.000, .001, ...
SUM = "data.sha256"  # of all parts together


class CarryError(Exception):
    """Something that traveled cannot be used; the message says what to do."""


def install(wheels: Path, site: Path) -> int:
    """Put all wheels of a folder where this command's processes find them, and nowhere else. Returns how many."""
    found = sorted(wheels.glob("*.whl"))
    if not found:
        raise CarryError(f"There is no wheel in {wheels}: make some with `make wheelhouse` where there is a network.")
    stamp = site / "installed.txt"
    names = "\n".join(path.name for path in found)
    if stamp.exists() and stamp.read_text() == names:
        return len(found)
    # --no-deps: the wheelhouse holds exactly what was missing; everything else is here already, and stays as it is.
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-index"]
    # --no-compile: Python compiles what it imports, which is little of it.
    command += ["--no-deps", "--no-compile", "--upgrade", "--target", str(site), *map(str, found)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["pip gave no reason"])[-1]
        raise CarryError(f"pip could not install the wheels of {wheels}: {last}")
    stamp.write_text(names)
    return len(found)


def paths(root: Path, site: Path | None) -> dict[str, str]:
    """Environment variables with which a Python process finds the course, its tools and the carried packages."""
    places = [root / "src", root, *([site] if site else [])]
    earlier = os.environ.get("PYTHONPATH")
    found = {"PYTHONPATH": os.pathsep.join([*map(str, places), *([earlier] if earlier else [])])}
    if site:  # nbconvert's templates lie there, outside of its package
        shared = os.environ.get("JUPYTER_PATH")
        found["JUPYTER_PATH"] = os.pathsep.join([str(site / "share" / "jupyter"), *([shared] if shared else [])])
    return found


def pack(data: Path, folder: Path, mib: float = 40) -> list[Path]:
    """Write the data sets below `data` as parts of at most so many MiB into `folder`, and return the parts."""
    names = ("mnist", "fashion_mnist", "cifar10", "MNIST", "FashionMNIST", "cifar-10-batches-py")
    found = [data / name for name in names if (data / name).is_dir()]
    if not found:
        raise CarryError(f"There is no data set in {data}: set TORCHCOURSE_DATA, or run `torchcourse data fetch`.")
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.glob(f"{PARTS}*"):
        old.unlink()
    out = _Splitter(folder, int(mib * 2**20))
    with tarfile.open(fileobj=out, mode="w|xz") as archive:
        for path in found:
            archive.add(path, path.name)
    out.close()
    (folder / SUM).write_text(out.digest.hexdigest() + "\n")
    return out.paths


class _Splitter(io.RawIOBase):
    """A file that goes on in another one whenever it is full."""

    def __init__(self, folder: Path, size: int):
        self.folder, self.size, self.paths, self.file, self.digest = folder, size, [], None, hashlib.sha256()

    def writable(self) -> bool:
        return True

    def write(self, content) -> int:
        content = memoryview(content).cast("B")
        self.digest.update(content)
        rest = content
        while rest:
            if self.file is None or self.file.tell() == self.size:
                if self.file:
                    self.file.close()
                self.paths.append(self.folder / f"{PARTS}{len(self.paths):03}")
                self.file = self.paths[-1].open("wb")
            written = self.file.write(rest[: self.size - self.file.tell()])
            rest = rest[written:]
        return len(content)

    def close(self) -> None:
        if self.file:
            self.file.close()
        super().close()


def unpack(folder: Path, target: Path) -> Path:
    """The folder with the data sets: `folder` itself, or what its parts hold, unpacked into `target`.

    Raises CarryError if a part is missing or damaged.
    """
    parts = sorted(folder.glob(f"{PARTS}*"))
    if not parts:
        return folder
    known = folder / SUM
    expected = known.read_text().strip() if known.exists() else ""
    stamp = target / SUM
    if stamp.exists() and stamp.read_text() == expected:
        return target
    digest = hashlib.sha256()
    for block in _blocks(parts):
        digest.update(block)
    if digest.hexdigest() != expected:
        raise CarryError(
            f"The {len(parts)} parts in {folder} are not what was packed: bring all of them, and {SUM}, along again."
        )
    target.mkdir(parents=True, exist_ok=True)
    with tarfile.open(fileobj=_Joined(parts), mode="r|xz") as archive:
        # Python has filters since 3.11.4.
        archive.extractall(target, **({"filter": "data"} if hasattr(tarfile, "data_filter") else {}))
    stamp.write_text(expected)
    return target


def _blocks(paths: list[Path]) -> Iterator[bytes]:
    for path in paths:
        with path.open("rb") as file:
            while block := file.read(2**20):
                yield block


class _Joined(io.RawIOBase):
    """Several files read as one."""

    def __init__(self, paths: list[Path]):
        self.blocks, self.rest = _blocks(paths), b""

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        while size < 0 or len(self.rest) < size:
            block = next(self.blocks, b"")
            if not block:
                break
            self.rest += block
        size = len(self.rest) if size < 0 else size
        found, self.rest = self.rest[:size], self.rest[size:]
        return found
