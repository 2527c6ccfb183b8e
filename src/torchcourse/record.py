"""Numbers out of a notebook: the runner reads them from the executed file and compares them with their ranges."""

MIME = "application/vnd.torchcourse.record+json"


def record(**numbers: float) -> None:
    """Show numbers under a cell and keep them, by name, in the executed notebook.

    numbers: anything that `float()` takes, a tensor of one element included; for example
        record(test_accuracy=0.97). The range that a number must lie in stands in course.toml.
    Outside Jupyter the line is printed.
    """
    values = {name: float(value) for name, value in numbers.items()}
    line = "recorded: " + ", ".join(f"{name.replace('_', ' ')} {value:.4g}" for name, value in values.items())
    try:
        from IPython import get_ipython
        from IPython.display import display
    except ImportError:
        print(line)
        return
    if get_ipython() is None:
        print(line)
    else:
        display({MIME: values, "text/plain": line}, raw=True)
