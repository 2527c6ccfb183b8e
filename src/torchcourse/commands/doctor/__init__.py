"""Is this machine ready for the course? One small function for each finding, and for each failure its fix.

    torchcourse doctor                          in a terminal
    torchcourse doctor --json > ada.json        for a forum, or for the instructor
    torchcourse doctor --pool reports/*.json    the reports of a class in one table
    doctor.show()                               in a notebook

It takes two or three seconds, changes nothing, and names neither user nor machine. Where a data set is missing, it also
asks the server that has it, for at most four seconds more. The JSON is one object: `format` (1; another number means
another form), `torchcourse` (its version), `ready` (true or false), `seconds`, and `findings`, a list of objects in a
fixed order with `name`, `ok` (true is fine, false needs a fix, null is worth knowing), `found`, `fix` ("" where there
is nothing to do) and `seconds`. Where PyTorch cannot be imported, "PyTorch" is the last of them.
"""

from __future__ import annotations

from pathlib import Path

from torchcourse.commands.doctor import report, software
from torchcourse.commands.doctor.finding import Examination, Finding, ask
from torchcourse.place import in_notebook

__all__ = ["EXAMINATIONS", "Finding", "examine", "main", "pool", "show"]

SLOW_DISK = "The disk answers slowly or not at all: copy the data to a local disk and set TORCHCOURSE_DATA to it."
RESTART = "Restart the kernel or the terminal. If it hangs again, "

# In the order of the report. What PyTorch needs comes before it, and the modules with the rest are imported only after
# it: on a machine where importing PyTorch fails, the report says why. Workers come before gloo: they are forked, which
# is better done before there are more threads.
EXAMINATIONS: dict[str, Examination] = {
    "Python": Examination(software.python),
    "packages": Examination(software.packages),
    "file names": Examination(software.names),
    "text encoding": Examination(software.text_encoding),
    "notebook kernel": Examination(software.kernel),
    "PyTorch": Examination(
        software.pytorch, 120, "Its disk is slow or hangs: try again, or install PyTorch on another disk."
    ),
    "torchvision": Examination(software.torchvision),
    "device": Examination("machine.accelerator", 20, "The driver hangs: restart the machine, or ask for another one."),
    "driver": Examination("machine.driver", 10, "The driver hangs: restart the machine, or ask for another one."),
    "threads": Examination("machine.threads"),
    "memory": Examination("machine.memory"),
    "shared memory": Examination("machine.shared_memory"),
    "clock": Examination("machine.clock"),
    "write permission": Examination("storage.permission", 5, "A network disk hangs: tell the machine's administrator."),
    "disk": Examination("storage.disk", 5, "A network disk hangs: tell the machine's administrator."),
    "data folder": Examination("storage.data_folder", 5, SLOW_DISK),
    "data sets": Examination("storage.data_sets", 20, SLOW_DISK),
    "DataLoader workers": Examination("processes.workers", 25, RESTART + "`num_workers=0` in every DataLoader."),
    "host name": Examination("processes.host_name", 5, "Set PET_LOCAL_ADDR=127.0.0.1: looking up the name takes long."),
    "ports": Examination("processes.ports"),
    "gloo": Examination("processes.gloo", 10, RESTART + "set GLOO_SOCKET_IFNAME=lo and MASTER_ADDR=127.0.0.1."),
}


def examine() -> list[Finding]:
    """All findings about this machine. Changes nothing and raises nothing; each examination has its limit of time."""
    findings = []
    for name, examination in EXAMINATIONS.items():
        findings.append(ask(name, examination))
        if name == "PyTorch" and not findings[-1].ok:
            break  # nothing below can be examined without it
    return findings


def main(json: bool = False) -> int:
    """Print the findings; the exit status is 1 if anything needs a fix. json: print an object for programs."""
    findings = examine()
    print(report.as_json(findings) if json else report.as_text(findings))
    return int(not report.ready(findings))


def pool(paths: list[str]) -> int:
    """Print the reports of a class as one table; the exit status is 1 if any of them has something to fix."""
    reports = {Path(path).stem: report.read(Path(path)) for path in paths}
    print(report.pooled(reports))
    return int(not all(report.ready(findings) for findings in reports.values()))


def show() -> None:
    """Show the findings under a notebook cell as a table, or print them."""
    findings = examine()
    if in_notebook():
        from IPython.display import display

        display({"text/html": report.as_html(findings), "text/plain": report.as_text(findings)}, raw=True)
    else:
        print(report.as_text(findings))
