from torchcourse_labs.cluster.why_failed import solution


def but(job, *letters):
    return [solution | {job: letter} for letter in letters]


RIGHT = [
    {job: f" {letter.lower()}" for job, letter in solution.items()},
    dict(reversed(solution.items())) | {"another": "Z"},
]

WRONG = {
    "kernel_image": but("kernel image", "N", "M"),
    "node_memory": but("oom-kill", "L", "F", "O"),
    "quota": but("quota", "E", "L"),
    "modules": but("modules", "N", "H"),
    "other_torch": but("other torch", "H", "N"),
    "collective_timeout": but("collective timeout", "G", "J", "D"),
    "mismatch": but("mismatch", "I", "B", "G"),
    "time_limit": but("time limit", "O", "E"),
    "shared_memory": but("bus error", "C", "L"),
    "port": but("address in use", "R", "J"),
    None: [
        [*solution.values()],
        {"quota": "K"},
        *but("quota", None, 5, "S", "move the cache", ["K"], "HK"),
        lambda: solution,
    ],
}
