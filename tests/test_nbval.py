"""Plain nbval works on the notebooks: what the README promises to anyone who prefers it to `make run`."""

import os
import subprocess
import sys

from tools import course


def test_a_chapter_passes_under_plain_nbval():
    """`make run` makes nbval's comparison for all chapters, on its own execution; see tools/compare.py."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    # Nothing written beside the notebooks, and none of the options of our own suite.
    quietly = ["-p", "no:cacheprovider", "-o", "addopts="]
    notebook = f"notebooks/{course.chapters()[0].name}.ipynb"
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "--nbval-lax", "--nbval-current-env", *quietly, notebook],
        cwd=course.ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0 and " passed" in done.stdout, done.stdout + done.stderr
