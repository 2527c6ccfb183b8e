"""Getting a data set through torchvision, so that it is either whole in its place or not there at all."""

import contextlib
import os
import re
import shutil
import socket
import tempfile
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

from filelock import FileLock, Timeout

from torchcourse.data import files
from torchcourse.data.catalog import SPLITS, spec
from torchcourse.errors import CourseError

_PROBE_SECONDS = 3.0
_STALL_SECONDS = 15.0


class NoDownload(CourseError):
    """There was no way to get the data: no network, no right to write, no answer. `reason` says which."""

    reason: str


def _no_download(title: str, reason: str, todo: str) -> NoDownload:
    error = NoDownload(f"{title} was not fetched: {reason}. {todo}")
    error.reason = reason
    return error


def offline() -> bool:
    """Whether TORCHCOURSE_OFFLINE forbids to look for a network (on compute nodes, in tests)."""
    return os.environ.get("TORCHCOURSE_OFFLINE", "").lower() not in ("", "0", "false", "no")


def why_unreachable(name: str) -> str | None:
    """None if the data set's server answers, else the reason. Takes a few seconds at most.

    Looking up a host's name has no time-out of its own and may hang for a minute on a machine without network, hence
    the thread.
    """
    answer: list[str | None] = []

    def ask() -> None:
        request = urllib.request.Request(spec(name).address, method="HEAD", headers={"User-Agent": "torchcourse"})
        try:
            with urllib.request.urlopen(request, timeout=_PROBE_SECONDS):
                answer.append(None)
        except urllib.error.HTTPError as error:
            answer.append(f"the server answers {error.code} {error.reason}")
        except Exception as error:
            answer.append(_in_the_way(str(getattr(error, "reason", None) or error), spec(name).address))

    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    thread.join(_PROBE_SECONDS + 1)
    return answer[0] if answer else _in_the_way("the server does not answer", spec(name).address)


def _in_the_way(error: str, address: str) -> str:
    """What an error means, and the error itself: a certificate or a proxy in the way is not a missing network."""
    if "CERTIFICATE_VERIFY_FAILED" in error:
        return f"Python does not trust the certificate that this network shows: {error}"
    scheme = address.partition(":")[0]
    if scheme in urllib.request.getproxies():
        if "nonnumeric port" in error:  # and then a part of the address, of its password perhaps
            error = "it is not an address"
        return f"the proxy in {scheme}_proxy does not let it through: {error}"
    return f"no network: {error}"


def fetch(name: str, root: Path, force: bool = False) -> str:
    """Puts the kit's cache `<root>/<name>/{train,test}.safetensors` in place and says what it did.

    What is there and whole stays, unless `force` says otherwise. A file in the way is renamed, never deleted. Raises
    NoDownload if there is no way to get the data.
    """
    what = spec(name)
    sweep(name, root)
    if not force and _whole(name, root):
        return f"{what.title} is already there, whole: {root}"
    if offline():
        raise _no_download(what.title, "TORCHCOURSE_OFFLINE is set", "Unset it where there is a network.")
    _check_writable(root, what.title, try_it=False)
    reason = why_unreachable(name)
    if reason:
        todo = f"docs/troubleshooting.md helps. Or run this elsewhere, and copy the folder {root / name} from there."
        raise _no_download(what.title, reason, todo)
    _check_writable(root, what.title, try_it=True)
    with _one_at_a_time(root, name):
        if not force and _whole(name, root):  # another process was quicker
            return f"{what.title} was fetched by another process: {root}"
        with tempfile.TemporaryDirectory(dir=root, prefix=_prefix(name), ignore_cleanup_errors=True) as temporary:
            moved = _put(_download(name, Path(temporary)), root / name)
    renamed = "".join(f"\nThe file that was in the way is now {path}." for path in moved)
    return f"{what.title} is there: {root / name}{renamed}"


def sweep(name: str, root: Path) -> None:
    """Removes the temporary folders of downloads that were killed. That of a download in progress stays."""
    pattern = re.compile(re.escape(_prefix(name)) + r"[a-z0-9_]{8}")
    try:
        left = [path for path in root.iterdir() if pattern.fullmatch(path.name)]
    except OSError:
        return
    if left:
        with contextlib.suppress(Timeout, OSError, NotImplementedError), _lock(root, name).acquire(timeout=0):
            for path in left:
                shutil.rmtree(path, ignore_errors=True)


def _prefix(name: str) -> str:
    """How the names of temporary folders begin; tempfile adds eight characters."""
    return f".{name}-download-"


def _whole(name: str, root: Path) -> bool:
    try:
        return all(files.find(name, split, root) is not None for split in SPLITS)
    except files.BadFile:
        return False


def _check_writable(root: Path, title: str, try_it: bool) -> None:
    """Raises NoDownload unless the root can be written to. Only `try_it` makes the folder: no network, no trace."""
    try:
        existing = next(folder for folder in (root, *root.parents) if folder.exists())
        if not existing.is_dir():
            raise NotADirectoryError(0, f"{existing} is a file")
        if not os.access(existing, os.W_OK):
            raise PermissionError(0, "read-only")
        if not try_it:
            return
        root.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=root):
            pass
    except OSError as error:
        reason = f"{root} cannot be written to ({error.strerror})"
        raise _no_download(title, reason, "Give another folder with --root or TORCHCOURSE_DATA.") from None


def _lock(root: Path, name: str) -> FileLock:
    """Held while a data set is downloaded. The system gives it back when the process dies, however it dies."""
    return FileLock(root / f".{name}.lock")


@contextlib.contextmanager
def _one_at_a_time(root: Path, name: str) -> Iterator[None]:
    """Lets one process download while the others wait.

    Without locks (some network disks) each downloads for itself: slower, but no harm, as the last step is a rename.
    """
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(OSError, NotImplementedError):
            stack.enter_context(_lock(root, name))
        yield


def _download(name: str, temporary: Path) -> Path:
    """Downloads into `temporary`, writes the cache's files to a folder in it, and returns that folder."""
    from safetensors.torch import (
        save_file,  # here, not above: importing takes time that `import torchcourse` must not cost
    )
    from torchvision import datasets

    what = spec(name)
    before = socket.getdefaulttimeout()
    socket.setdefaulttimeout(_STALL_SECONDS)  # torchvision sets none: a stalled connection would hang forever
    try:
        getattr(datasets, what.torchvision)(temporary, download=True)
        new = temporary / "new"
        new.mkdir()
        for split in SPLITS:
            tensors = files.find(name, split, temporary)
            if tensors is None:
                raise RuntimeError(f"no {split} files came")
            images, labels = tensors
            path = files.cache_file(name, split, temporary).name
            save_file(
                {"images": images.contiguous(), "labels": labels}, new / path, {"classes": " ".join(what.classes)}
            )
            (new / path).chmod(0o666 & ~_umask())  # readable for the class, where the user's files are
        return new
    except Exception as error:  # URLError, time-outs, checksums, a full disk: whichever, nothing has been put in place
        sentence = str(error).strip().splitlines()[-1] if str(error).strip() else type(error).__name__
        raise _no_download(
            what.title, f"the download failed ({sentence})", "Nothing was left half done: try again."
        ) from None
    finally:
        socket.setdefaulttimeout(before)


def _put(new: Path, folder: Path) -> list[Path]:
    """Moves finished files to their place. Returns the new names of what was in the way.

    Usually there is no such folder yet, and renaming the whole of it puts both splits in place at once.
    """
    aside = []
    if os.path.lexists(folder) and not folder.is_dir():
        aside.append(_move_aside(folder))
    if not folder.exists():
        with contextlib.suppress(OSError):
            os.rename(new, folder)
            return aside
    folder.mkdir(exist_ok=True)
    for path in sorted(new.iterdir()):
        target = folder / path.name
        if os.path.lexists(target):
            aside.append(_move_aside(target))
        os.replace(path, target)
    return aside


def _move_aside(path: Path) -> Path:
    number = 1
    while os.path.lexists(aside := path.with_name(f"{path.name}.broken-{number}")):
        number += 1
    shutil.move(path, aside)
    return aside


def _umask() -> int:
    mask = os.umask(0)  # the only way to read it is to set it
    os.umask(mask)
    return mask
