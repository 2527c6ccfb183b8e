"""What a notebook tells the runner: numbers, outcomes of checks, and the origin of its data.

All of it travels in the executed file, in one MIME type below what the reader sees. Nothing parses sentences.
"""

from torchcourse.place import in_notebook

# Its content has one of three keys: {"numbers": {name: value}}, {"outcomes": {exercise: outcome}}, {"origin": name}.
MIME = "application/vnd.torchcourse.record+json"


def record(**numbers: float) -> None:
    """Show numbers under a cell and keep them, by name, in the executed notebook.

    numbers: anything that `float()` takes, a tensor of one element included; for example
        record(test_accuracy=0.97). The range that a number must lie in is in course.toml.
    Outside Jupyter the line is printed.
    """
    values = {name: float(value) for name, value in numbers.items()}
    line = "recorded: " + ", ".join(f"{name.replace('_', ' ')} {value:.4g}" for name, value in values.items())
    if in_notebook():
        from IPython.display import display

        display({MIME: {"numbers": values}, "text/plain": line}, raw=True)
    else:
        print(line)
