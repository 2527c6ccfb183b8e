from collections import Counter

import torch
from support.answers import mutant, mutants

from torchcourse_labs.performance.busy_share import solution


def by_stack(events, waits):
    """Own times from a stack per row, the busy share from marks on a line of half microseconds."""
    own, busy = Counter({e["name"]: 0 for e in events}), set()
    for tid in {e["tid"] for e in events}:
        stack, doing = [], {}
        for e in sorted((e for e in events if e["tid"] == tid), key=lambda e: (e["ts"], -e["dur"])):
            while stack and stack[-1]["ts"] + stack[-1]["dur"] <= e["ts"]:
                stack.pop()
            own[e["name"]] += e["dur"]
            if stack:
                own[stack[-1]["name"]] -= e["dur"]
            stack.append(e)
            doing |= dict.fromkeys(range(int(2 * e["ts"]), int(2 * (e["ts"] + e["dur"]))), e["name"])
        busy |= {half for half, name in doing.items() if name not in waits}
    span = max(e["ts"] + e["dur"] for e in events) - min(e["ts"] for e in events)
    return [torch.tensor(len(busy) / 2 / span), own]


SHARE = "busy / (times[-1] - times[0])"
BUSY = "bool({*innermost.values()} - waits)"

RIGHT = [by_stack, mutant(solution, ("reverse=True", "reverse=False"), ("in running}", "in running[::-1]}"))]

WRONG = {
    "form": mutants(solution, f"return {SHARE}, own", f"return {SHARE}, [*own.items()]"),
    None: [
        lambda events, waits: (solution(events, waits)[0], {}),
        *mutants(by_stack, '<= e["ts"]', '< e["ts"] + (e["dur"] >= stack[-1]["dur"])'),
        *mutants(solution, BUSY, "len(innermost)", "bool(running)"),
        *mutants(
            solution, SHARE, "busy / times[-1]", "1 - sum(own[n] for n in waits & {*own}) / (times[-1] - times[0])"
        ),
        *mutants(solution, 'each["tid"]: each', "0: each"),
        *mutants(solution, "for name in innermost.values()", "for name in [each['name'] for each in running]"),
    ],
}
