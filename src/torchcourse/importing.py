"""Import PyTorch without the garbage collector."""

import atexit
import gc
import importlib
import sys


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
