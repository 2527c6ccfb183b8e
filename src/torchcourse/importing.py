"""Import PyTorch without the garbage collector; say in a sentence why it cannot be imported."""

import atexit
import gc
import importlib
import importlib.util
import os
import site
import sys
from pathlib import Path

OLDEST_TORCH = (2, 11)
NEEDED = ("torch", "numpy", "matplotlib", "psutil")  # by every notebook
LIBRARIES = ("torch", "torchvision", "numpy", "matplotlib")  # the set-up cell may install others for this user only
# A file of one of these names beside a notebook is imported in place of the real thing.
TAKEN = {*LIBRARIES, "psutil", "safetensors", "torchcourse", "IPython", *sys.stdlib_module_names} - {"test", "this"}


def load(*names: str) -> None:
    """Import modules, PyTorch first of all, in a process that has not done anything else yet.

    An import makes hundreds of thousands of objects that stay. Python's garbage collector would look through all of
    them again and again for something to free, a fifth of the time of `import torch`. Here it rests, and from then on
    it leaves these objects alone (`gc.freeze`), in this process and in its forks. Does nothing if the first module has
    been imported before: the collector must not leave alone what a user has made.
    """
    if names[0] in sys.modules:
        return
    gc.disable()
    try:
        for name in names:
            importlib.import_module(name)
    finally:
        gc.freeze()
        gc.enable()
        atexit.register(gc.unfreeze)  # a library in PyTorch complains about whatever is left at the end


def problem() -> tuple[str, str] | None:
    """Import what every notebook needs, PyTorch first. What is wrong with it, and what to do; None if all is well."""
    for name in NEEDED:
        try:
            if name == "torch":
                load(name)
            version = importlib.import_module(name).__version__  # a student's file of that name has none
        except Exception as error:  # another installation's, or a file of the student's: it may raise anything
            reason = (str(error).strip() or "no reason given").splitlines()[-1]  # NumPy begins with advice
            found = f"{name} cannot be imported ({type(error).__name__}: {reason})"
            install = f"--force-reinstall {name}"
        else:
            # "2.11.0+cpu" and "2.11.0a0+git" both begin with the two numbers that count.
            if name != "torch" or tuple(int(part) for part in version.split(".")[:2]) >= OLDEST_TORCH:
                continue
            oldest = ".".join(map(str, OLDEST_TORCH))
            found = f"PyTorch {version} is too old: this course needs {oldest} or newer"
            install = "--upgrade torch torchvision"
        if {"", os.getcwd()} & set(sys.path) and (files := hiding(Path.cwd())):
            advice = f"Rename {', '.join(files)} in this folder: Python takes such a file for the library of that name."
        elif mixed(name):
            advice = "Two installations are mixed: unset PYTHONPATH and set PYTHONNOUSERSITE=1."
        else:
            advice = f"Run `pip install {install}`."
        return found, f"{advice} Then restart the kernel."
    return None


def hiding(folder: Path) -> list[str]:
    """What in a folder hides a library or a standard module: torch.py, random.py, a package numpy."""
    return [path.name for path in sorted(folder.iterdir()) if _hides(path)]


def _hides(path: Path) -> bool:
    module = path.stem if path.suffix == ".py" else path.name
    # Without __init__.py a folder hides nothing: what `git clone` leaves beside a notebook, for example.
    importable = path.suffix == ".py" or (path / "__init__.py").is_file()
    # In the folder of the package itself, torchcourse/ is the real thing.
    return module in TAKEN and importable and path.resolve() != Path(__file__).resolve().parent


def mixed(*more: str) -> dict[str, Path]:
    """Libraries from PYTHONPATH or the user's own folder, where others come from the environment: name -> folder.

    more: names to look for besides LIBRARIES
    """
    added = {Path(entry).absolute() for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep) if entry}
    added |= {Path(site.getusersitepackages())} if site.ENABLE_USER_SITE else set()
    specs = {name: importlib.util.find_spec(name) for name in dict.fromkeys((*LIBRARIES, *more))}
    places = {name: Path(spec.origin).parent.parent for name, spec in specs.items() if spec and spec.origin}
    strays = {name: place for name, place in places.items() if place in added}
    return strays if len(set(places.values())) > 1 else {}
