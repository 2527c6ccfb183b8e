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


# Each test of these files executes a notebook: workers share them out one by one. Any other file stays on one worker,
# so that what its tests have in common is made once.
ONE_BY_ONE = ("test_colab.py", "test_nbval.py", "test_notebooks.py")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> object:
    """Which tests go to one worker. Not by `--dist loadgroup`: it has no effect with pytest 9.2 and xdist 3.8."""
    from xdist.scheduler import LoadScopeScheduling

    class Scheduling(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            file = nodeid.split("::")[0]
            return nodeid if file.endswith(ONE_BY_ONE) else file

    return Scheduling(config, log)


def skip_or_fail(reason: str) -> None:
    """Skip on a person's machine where a part is missing; fail in CI, where nothing may be missing."""
    if os.environ.get("CI") == "true":
        pytest.fail(f"In CI nothing is skipped: {reason}")
    pytest.skip(reason)


@pytest.fixture(scope="module")
def chromium():
    """Headless Chromium, for the tests of one file."""
    from tools import slides, slides_browser

    try:
        with slides_browser.browser() as opened:
            yield opened
    except slides.SlidesError as error:
        skip_or_fail(str(error))
