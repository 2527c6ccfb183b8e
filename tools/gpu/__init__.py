"""The course on a GPU machine: `make gpu`, or `python -m tools.gpu --help`. `course` executes the notebooks.

Until the packages from the wheelhouse are in reach, nothing is imported but the standard library and PyTorch.
"""
