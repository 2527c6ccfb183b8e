"""Benchmarks of the course: `python -m tools.bench --help`, or `make bench`.

Each part is a function of `quick` that returns plain numbers; the docstring of its module says what they mean.
"""
