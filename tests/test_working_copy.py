"""`make lab`: a copy of the course to work in, where nothing of a person's work is ever lost; and JupyterLab on it."""

import json
import os
import re
import subprocess
import sys

import pytest
from conftest import copy_of_course, wait_until
from PIL import Image
from PIL.PngImagePlugin import PngInfo

from tools.course import ROOT
from tools.lab import refresh
from tools.slides_browser import PATIENCE

LAB = "labs/01_tensors.ipynb"


OLD, NEW, OPENED, MINE = (
    json.dumps({"cells": [{"source": source}], "metadata": {"language_info": {"version": version}}}).encode()
    for source, version in (("old", None), ("new", None), ("old", "3.12.1"), ("mine", "3.12.1"))
)


@pytest.mark.parametrize(
    ("before", "there", "offered", "after", "waits"),
    [
        (OLD, OLD, OLD, OLD, False),
        (OLD, OLD, NEW, NEW, False),
        (OLD, OPENED, NEW, NEW, False),  # there is no work in it
        (OLD, MINE, OLD, MINE, False),
        (OLD, MINE, NEW, MINE, True),
        (OLD, NEW, NEW, NEW, False),
        (OLD, b"damaged", NEW, b"damaged", True),
        (OLD, None, NEW, NEW, False),  # renamed
        (None, MINE, NEW, MINE, True),  # its owner had it before there was an edition
    ],
)
def test_a_new_edition_and_work(tmp_path, before, there, offered, after, waits):
    """What becomes of a lab that was handed out as `before`."""
    path = tmp_path / LAB
    assert refresh(tmp_path, {LAB: before} if before else {}) == []
    path.parent.mkdir(exist_ok=True)
    path.unlink(missing_ok=True)
    if there:
        path.write_bytes(there)
    for _ in range(2):  # the second time says the same
        assert refresh(tmp_path, {LAB: offered}) == ([LAB] if waits else [])
        assert path.read_bytes() == after


# ---------------------------------------------------------------------------------------------------------------------
# In the browser


@pytest.fixture(scope="module")
def page(tmp_path_factory, chromium):
    """What a person sees first after `make lab`, here in a copy of the course."""
    folder = tmp_path_factory.mktemp("lab")
    root, said = copy_of_course(folder / "course"), folder / "said"
    settings = folder / ".jupyter" / "lab" / "user-settings" / "@jupyterlab" / "notebook-extension"
    settings.mkdir(parents=True)  # all cells are in the page, even those that are scrolled out of sight
    (settings / "tracker.jupyterlab-settings").write_text('{"windowingMode": "none"}')
    own = {"HOME": str(folder), "PYTHONPATH": f"{root / 'src'}{os.pathsep}{root}"}
    command = [sys.executable, "-m", "tools.lab", "--no-browser", "--port=0", "--allow-root"]
    with said.open("w") as output:
        server = subprocess.Popen(command, cwd=root, env=os.environ | own, stdout=output, stderr=subprocess.STDOUT)
    try:
        wait_until(lambda: "?token=" in said.read_text() or server.poll() is not None, "JupyterLab")
        address = re.search(r"http://127\.0\.0\.1\S+", said.read_text())
        assert address, said.read_text()
        context = chromium.new_context(viewport={"width": 1280, "height": 2400})
        context.set_default_timeout(PATIENCE)
        page = context.new_page()
        page.goto(address[0])
        yield page
        context.close()
    finally:
        server.terminate()
        server.wait(60)


def test_the_links_lead_from_the_start_through_a_lab_to_the_next_lecture(page):
    """The root holds lectures and labs, the course map is a page, and no menu of instructors is there."""
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


def test_the_picture_of_a_lab_is_true(page):
    """docs/lab.png shows what the first exercise and its check show today: the words that it shows are in the file."""
    page.set_viewport_size({"width": 1060, "height": 1600})
    page.goto(re.sub(r"/lab/.*", "/lab/tree/labs/00_getting_started.ipynb", page.url))
    page.get_by_text("Python 3 (ipykernel) | Idle").first.wait_for()
    page.keyboard.press("Control+B")  # without the list of files
    cells = page.locator(".jp-Notebook:visible .jp-Cell")
    title, answer = cells.first, cells.filter(has_text="def filled_like").first
    hint = cells.filter(has_text='hint("filled_like")').last
    answer.locator(".cm-content").click()
    page.keyboard.press("Control+End")  # the last line is the stub
    page.keyboard.press("Shift+Home")
    page.keyboard.insert_text("return torch.full(tensor.shape, value)")
    hint.locator(".cm-content").click()
    page.locator(".lm-MenuBar-item", has_text="Run").first.click()
    page.locator(".lm-Menu-item[data-command='notebook:run-all-above']").click()
    hint.locator(".cm-content").click()
    page.keyboard.press("Control+Enter")
    hint.locator(".jp-OutputArea-output").wait_for()
    title.locator("h1").click()  # the frame around the current cell goes there

    section = [cell for cell in cells.all() if re.search("filled.like|like another", cell.inner_text())]
    words = " ".join(re.sub(r"\[\d+\]:", "", cell.inner_text()) for cell in section)
    words = " ".join(re.sub(r"value = \d+", "value", words).split())  # the value is a random one
    first, last = section[0].bounding_box(), section[-1].bounding_box()
    picture = ROOT / "build" / "screenshots" / "lab.png"
    picture.parent.mkdir(parents=True, exist_ok=True)
    page.screenshot(path=picture, clip=first | {"height": last["y"] + last["height"] - first["y"]})
    info = PngInfo()
    info.add_itxt("Description", words)
    Image.open(picture).save(picture, pnginfo=info, optimize=True)
    shown = Image.open(ROOT / "docs" / "lab.png").text.get("Description")
    assert shown == words, f"docs/lab.png is stale: look at {picture.relative_to(ROOT)}, and copy it to docs/lab.png"
