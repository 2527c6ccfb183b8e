from torchcourse_labs.cluster.why_failed import solution


def but(job, *letters):
    return [solution | {job: letter} for letter in letters]


RIGHT = [
    {job: f" {letter.lower()}" for job, letter in solution.items()},
    dict(reversed(solution.items())) | {"another": "Z"},
]

WRONG = {
    "another_first": [
        *but("kernel image", "N"),
        *but("quota", "E"),
        *but("collective timeout", "G", "J", "D"),
        *but("time limit", "O"),
        *but("address in use", "R"),
    ],
    None: [[*solution.values()], {"quota": "K"}, *but("quota", None, "S", "move the cache", "HK"), lambda: solution],
}
