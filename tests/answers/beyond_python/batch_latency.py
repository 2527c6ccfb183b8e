import statistics

import numpy as np
from support.answers import mutants

from torchcourse_labs.beyond_python.batch_latency import mistaken, solution


def by_clock(arrivals, most, fixed, each):
    queue, latencies, now, coming = [], [], 0, list(arrivals)
    while coming or queue:
        while coming and coming[0] <= now:
            queue.append(coming.pop(0))
        batch, queue = queue[:most], queue[most:]
        now = now + fixed + each * len(batch) if batch else coming[0]
        latencies.extend(now - arrival for arrival in batch)
    return [np.array(latencies), *np.percentile(latencies, [50, 99], method="inverted_cdf")]


def instead(key):
    return lambda *given: (mistaken(*given)[key], 0, 0)


def other_p50(change):
    return lambda *given: (solution(*given)[0], change(sorted(solution(*given)[0])), solution(*given)[2])


RIGHT = [by_clock]

WRONG = {
    "waits_until_full": [instead("full")],
    "end_times": [instead("ends")],
    "without_waiting": [instead("batch")],
    "waiting_time": [instead("waiting")],
    "sorted_in_place": mutants(solution, "ordered = sorted(latencies)", "latencies.sort(); ordered = latencies"),
    "no_limit": mutants(solution, "[:most]", ""),
    "too_early": [instead("blind")],
    "interpolated": [other_p50(statistics.median)],
    None: [
        instead("too strict"),
        *mutants(solution, "each * len(batch)", "each", "each * most"),
        *mutants(solution, "sorted(latencies)", "latencies"),
        *mutants(solution, "/ 100) - 1", "/ 100)"),
        *mutants(solution, "math.ceil(share * len(ordered) / 100)", "round(share * len(ordered) / 100)"),
        other_p50(lambda ordered: ordered[len(ordered) // 2]),
        lambda *given: (*solution(*given)[:2], max(solution(*given)[0])),
    ],
}
