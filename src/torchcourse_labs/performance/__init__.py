"""Chapter 08: what limits a step, a trace summed up, one graph, few compilations, layout, memory."""

CHAPTER = "08_performance"
EXERCISES = ("find_limit", "busy_share", "one_graph", "no_recompiles", "keep_layout", "spare_memory", "watt_hours")
