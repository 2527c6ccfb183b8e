"""PyTorch, from tensor to cluster: the small package that notebooks, labs and your own scripts import.

`import torchcourse` is quick on purpose: each module is loaded when you import it, for example
`from torchcourse import data, plots`.

Import it before torch: then PyTorch's threads sleep while they wait for one another, and two notebooks on one machine
do not slow each other down (see OMP_WAIT_POLICY below).
"""

import os
import sys
import warnings

# How threads wait. PyTorch shares the work of one operation among threads (OpenMP). A thread that has done its share
# waits for the others, by default in a busy loop: it asks again and again. On an idle machine that saves the
# microseconds of falling asleep and waking up. Beside another program it is a disaster: the waiting thread holds the
# core that the thread it waits for needs, and two notebooks on two cores take many times as long as one after the
# other. With this setting, threads sleep while they wait. OpenMP reads it once, when `import torch` loads it: so it is
# set here, before that line, and it has no effect in a script that imports torch first. Your own choice wins: set
# OMP_WAIT_POLICY=active before Python starts, and threads wait in the busy loop.
if "torch" not in sys.modules:
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")

from torchcourse.errors import CourseError
from torchcourse.record import record

__version__ = "0.2.0"
__all__ = ["CourseError", "record", "setup"]


def setup(chapter: str) -> None:
    """Make a notebook of the course ready: called by its first cell.

    chapter: number and slug, for example "01_tensors"; `progress()` starts with its exercises.
    Prints one line: what runs, where; and how to switch a GPU on where that takes a few clicks.
    Raises CourseError if torch is too old or cannot be imported.
    """
    from torchcourse import importing, place

    place.undo_harmful_settings()
    if problem := importing.problem():
        raise CourseError(f"{problem[0]}. {problem[1]}")
    import torch

    from torchcourse import device, distributed, plots

    # On Python 3.13.0, each notebook that compiles would show this warning, and the runner would count it as a fault.
    warnings.filterwarnings("ignore", "Guards may run slower on Python 3.13.0", RuntimeWarning)
    plots.use_style()
    distributed.register()  # %%torchrun
    place.chapter = chapter
    print(f"torchcourse {__version__} · PyTorch {torch.__version__} · {device.describe()} · {os.cpu_count()} CPU cores")
    if advice := place.gpu_advice():
        print(advice)
