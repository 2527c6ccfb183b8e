"""Benchmarks of the course: `python -m tools.bench --help`, or `make bench`.

Parts on the processor: peak, libraries, mnist, cifar, gains. Parts on the best device, which `make gpu` runs too:
throughput, bandwidth, precision, recipes, ddp. `table` prints and draws what was recorded. Each part is a module with
`measure(quick, say)` that returns plain numbers; what they mean stands at its top.
"""
