"""Whether this is a notebook: one answer for all that shows something."""

import sys
from types import SimpleNamespace

import pytest

from torchcourse import place, record


@pytest.mark.parametrize(
    ("loaded", "answer"),
    [
        (None, False),  # IPython is not installed
        (SimpleNamespace(get_ipython=lambda: None), False),  # imported by a script
        (SimpleNamespace(get_ipython=lambda: SimpleNamespace()), False),  # a terminal
        (SimpleNamespace(get_ipython=lambda: SimpleNamespace(kernel=object())), True),
    ],
)
def test_a_notebook_is_where_a_kernel_runs(monkeypatch, loaded, answer, capsys):
    monkeypatch.setitem(sys.modules, "IPython", loaded)
    assert place.in_notebook() is answer
    if not answer:
        record(loss=0.5)
        assert capsys.readouterr().out == "recorded: loss 0.5\n"
