"""Benchmarks of the course: `python -m tools.bench --help`, or `make bench`.

Parts: peak, libraries, mnist, cifar, throughput, gains; `table` prints and draws what they recorded. Each part is a
module with `measure(quick, say)` that returns plain numbers; what they mean stands at its top.
"""
