"""`make lab`: a copy of the course to work in, where nothing of a person's work is ever lost; and JupyterLab on it."""

import json
import os
import re
import subprocess
import sys
from contextlib import closing

from conftest import copy_of_course, wait_until

from tools.jupyterlab import refresh
from tools.slides_browser import PATIENCE

LAB = "labs/01_tensors.ipynb"
OLD, NEW, OPENED, MINE = (
    json.dumps({"cells": [{"source": source}], "metadata": {"language_info": {"version": version}}}).encode()
    for source, version in (("old", None), ("new", None), ("old", "3.12.1"), ("mine", "3.12.1"))
)


def test_a_new_edition_and_work(tmp_path):
    """What becomes of a lab that was handed out as `before`."""
    for number, (before, there, offered, after, waits) in enumerate(
        [
            (OLD, OLD, NEW, NEW, False),
            (OLD, OPENED, NEW, NEW, False),  # there is no work in it
            (OLD, MINE, OLD, MINE, False),
            (OLD, MINE, NEW, MINE, True),
            (OLD, NEW, NEW, NEW, False),
            (OLD, b"damaged", NEW, b"damaged", True),
            (OLD, None, NEW, NEW, False),  # renamed
            (None, MINE, NEW, MINE, True),  # its owner had it before there was an edition
        ]
    ):
        work = tmp_path / str(number)
        assert refresh(work, {LAB: before} if before else {}) == []
        path = work / LAB
        path.parent.mkdir(exist_ok=True)
        path.unlink(missing_ok=True)
        if there:
            path.write_bytes(there)
        for _ in range(2):  # the second time says the same
            assert refresh(work, {LAB: offered}) == ([LAB] if waits else [])
            assert path.read_bytes() == after


# ---------------------------------------------------------------------------------------------------------------------
# In the browser


def test_the_links_lead_from_the_start_through_a_lab_to_the_next_lecture(tmp_path, chromium):
    """In a copy of the course. The root holds lectures and labs, its page is the map, no menu is for instructors."""
    root, said = copy_of_course(tmp_path / "course"), tmp_path / "said"
    settings = tmp_path / ".jupyter" / "lab" / "user-settings" / "@jupyterlab" / "notebook-extension"
    settings.mkdir(parents=True)  # all cells are in the page, even those that are scrolled out of sight
    (settings / "tracker.jupyterlab-settings").write_text('{"windowingMode": "none"}')
    own = {"HOME": str(tmp_path), "PYTHONPATH": f"{root / 'src'}{os.pathsep}{root}"}
    command = [sys.executable, "-m", "tools.jupyterlab", "--no-browser", "--port=0", "--allow-root"]
    with said.open("w") as output:
        server = subprocess.Popen(command, cwd=root, env=os.environ | own, stdout=output, stderr=subprocess.STDOUT)
    try:
        wait_until(lambda: "?token=" in said.read_text() or server.poll() is not None, "JupyterLab")
        address = re.search(r"http://127\.0\.0\.1\S+", said.read_text())
        assert address, said.read_text()
        with closing(chromium.new_context()) as context:
            context.set_default_timeout(PATIENCE)
            page = context.new_page()
            page.goto(address[0])
            page.locator(".jp-RenderedMarkdown h1").wait_for()
            for name in ("labs", "notebooks"):
                page.locator(".jp-DirListing-itemName", has_text=name).wait_for()
            assert "nbgrader" not in page.locator(".lm-MenuBar-content").inner_text().lower()
            for link, heading in (
                ("notebooks/00_getting_started", "00 · Getting started"),
                ("labs/00_getting_started", "Lab 00 · Getting started"),
                ("notebooks/01_tensors", "01 · Tensors"),
            ):
                page.locator(f".jp-RenderedMarkdown:visible a[href*={link!r}]:not([href*=colab])").last.click()
                page.get_by_role("heading", name=heading, exact=False).first.wait_for()
    finally:
        server.terminate()
        server.wait(60)
