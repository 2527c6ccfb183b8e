import math

from support.answers import mutants

from torchcourse_labs.cluster.right_size import solution


def by_columns(text):
    rows = [line.split("|") for line in text.strip().split("\n")][1:]
    done = {row[0] for row in rows if row[1] == "COMPLETED"}
    good = [row for row in rows if row[0].partition(".")[0] in done]

    def seconds(time):
        days, _, clock = time.rpartition("-")
        return 86_400 * int(days or 0) + sum(float(part) * 60**i for i, part in enumerate(reversed(clock.split(":"))))

    def gib(size):
        return float(size[:-1]) * 2.0 ** (10 * "KMG".index(size[-1]) - 20)

    jobs = [row for row in good if row[0].isdigit()]
    return {
        "minutes": math.ceil(max(seconds(row[2]) for row in jobs) * 1.25 / 60),
        "cores": max(math.ceil(seconds(row[3]) / seconds(row[2])) for row in jobs),
        "gib": math.ceil(max(gib(row[4]) for row in good if row[4]) * 1.2),
    }


RIGHT = [by_columns]

WRONG = {
    None: [
        lambda text: (3, 4, 5),
        *mutants(solution, ' and row["State"] == "COMPLETED"', "", ' and row["State"] != "FAILED"'),
        *mutants(solution, ' and row["JobID"].split(".")[0] in jobs', "", ' and row["State"] == "COMPLETED"'),
        *mutants(solution, '"." not in row["JobID"] and ', ""),
        *mutants(solution, '1.25 * max(seconds(job["Elapsed"]) / 60', 'max(seconds(job["Elapsed"]) / 60'),
        *mutants(solution, '"minutes": math.ceil', '"minutes": int', '"minutes": round'),
        *mutants(solution, 'if row["MaxRSS"] and', 'if row["MaxRSS"] and "batch" not in row["JobID"] and'),
        *mutants(solution, 'gib(step["MaxRSS"])', 'float(step["MaxRSS"][:-1]) / 1024', 'gib(step["MaxRSS"]) * 1024'),
        *mutants(by_columns, "86_400 * int(days or 0) + ", ""),
    ]
}
