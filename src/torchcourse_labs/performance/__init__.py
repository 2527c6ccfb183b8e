"""Chapter 08: what limits a step, waste found and removed, one graph, few compilations, layout, memory."""

CHAPTER = "08_performance"
EXERCISES = ("find_limit", "lean_epoch", "one_graph", "no_recompiles", "keep_layout", "spare_memory", "watt_hours")
