"""Whether this is a notebook: one answer for all that shows something."""

import subprocess
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


def test_asking_does_not_import_ipython():
    code = "import sys; from torchcourse import place; assert not place.in_notebook(); print('IPython' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout == "False\n", done.stderr
