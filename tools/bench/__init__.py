"""Benchmarks of the course: `python -m tools.bench --help`, or `make bench`.

Each comparison is a module with `measure(rows, quick, say)` that returns plain numbers; its docstring says what they
mean. `rows` keeps each of them as soon as it is measured.
"""
