"""Shared by all tests: where the course lies, and what may be skipped."""

import os

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--answers",
        default=None,
        metavar="FOLDER",
        help="a folder of truth tables in the form of tests/answers (see tests/test_checks.py)",
    )


def skip_or_fail(reason: str) -> None:
    """Skip on a person's machine where a part is missing; fail in CI, where nothing may be missing."""
    if os.environ.get("CI") == "true":
        pytest.fail(f"In CI nothing is skipped: {reason}")
    pytest.skip(reason)
