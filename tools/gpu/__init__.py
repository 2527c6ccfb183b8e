"""The course on a GPU machine: `python -m tools.gpu --help`, or `make gpu`.

`machine` looks at what is there, `carry` brings what traveled along (wheels, data) into reach, `parts` runs each part
in a process of its own with a time limit, `course` executes the notebooks. Before the wheels are in reach nothing is
imported from outside the standard library but PyTorch.
"""
