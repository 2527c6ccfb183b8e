"""Shared by all tests: where the course lies, and what may be skipped."""

import os

import pytest

if "PYTEST_XDIST_WORKER" in os.environ:
    # Before torch is imported: two workers that take both cores each wait for one another.
    os.environ.setdefault("OMP_NUM_THREADS", "1")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--answers",
        default=None,
        metavar="FOLDER",
        help="a folder of truth tables in the form of tests/answers (see tests/test_checks.py)",
    )


def pytest_itemcollected(item: pytest.Item) -> None:
    """Under `--dist loadgroup` a file stays on one worker, unless its tests name groups of their own.

    Here and not in `pytest_collection_modifyitems`: xdist reads the groups in its own hook of that name, before ours.
    """
    if not item.get_closest_marker("xdist_group"):
        item.add_marker(pytest.mark.xdist_group(item.path.name))


def skip_or_fail(reason: str) -> None:
    """Skip on a person's machine where a part is missing; fail in CI, where nothing may be missing."""
    if os.environ.get("CI") == "true":
        pytest.fail(f"In CI nothing is skipped: {reason}")
    pytest.skip(reason)
