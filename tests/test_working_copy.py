"""`make lab`: a copy of the course to work in, where nothing of a person's work is ever lost."""

import pytest

from tools.lab import refresh

LAB = "labs/01_tensors.ipynb"


@pytest.mark.parametrize(
    ("edited", "offered", "content", "waits"),
    [
        (None, b"old", b"old", False),
        (None, b"new", b"new", False),
        (b"mine", b"old", b"mine", False),
        (b"mine", b"new", b"mine", True),
        (b"new", b"new", b"new", False),
        ("deleted", b"new", b"new", False),
    ],
)
def test_a_new_edition_and_work(tmp_path, edited, offered, content, waits):
    """What becomes of a lab that was handed out as b"old"."""
    work = tmp_path / "work"
    assert refresh(work, {LAB: b"old"}) == []
    if edited == "deleted":
        (work / LAB).unlink()
    elif edited:
        (work / LAB).write_bytes(edited)
    for _ in range(2):  # the second time says the same
        assert refresh(work, {LAB: offered}) == ([LAB] if waits else [])
        assert (work / LAB).read_bytes() == content


def test_who_renames_gets_the_new_edition_beside(tmp_path):
    refresh(tmp_path, {LAB: b"old"})
    (tmp_path / LAB).write_bytes(b"mine")
    (tmp_path / LAB).rename(tmp_path / "labs" / "mine.ipynb")
    assert refresh(tmp_path, {LAB: b"new"}) == []
    assert (tmp_path / LAB).read_bytes() == b"new" and (tmp_path / "labs" / "mine.ipynb").read_bytes() == b"mine"


def test_a_file_that_was_there_before_is_its_owners(tmp_path):
    (tmp_path / "labs").mkdir()
    (tmp_path / LAB).write_bytes(b"mine")
    assert refresh(tmp_path, {LAB: b"new"}) == [LAB]
    assert (tmp_path / LAB).read_bytes() == b"mine"
