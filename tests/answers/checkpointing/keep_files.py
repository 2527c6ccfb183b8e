import math
import os

from support.answers import mutant, mutants

from torchcourse_labs.checkpointing.keep_files import solution

SAVE = 'save(folder / f"step-{steps[-1]}.pt")'
UNLINK = '(folder / f"step-{step}.pt").unlink(missing_ok=True)'
LOOP = "for step in steps[:-last]:"


def by_folder(folder, scores, save, last):
    number = max(scores)
    save(str(folder / f"step-{number}.pt"))
    keep, top = {*[*scores][-last:]}, -math.inf
    for step, score in scores.items():
        if score > top:
            top, best = score, step
    if top > -math.inf:
        keep.add(best)
    for file in folder.glob("step-[0-9]*.pt"):
        if int(file.stem.split("-")[1]) not in keep:
            os.remove(file)


RIGHT = [by_folder]

WRONG = {
    "deleted_first": [mutant(solution, (SAVE, "pass"), (UNLINK, f"{UNLINK}\n    {SAVE}"))],
    "nan": mutants(solution, " if not math.isnan(scores[step])", ""),
    None: [
        *mutants(solution, LOOP, "for step in sorted(steps, key=str)[:-last]:"),
        *mutants(solution, SAVE, f"try: {SAVE}\n    except OSError: pass"),
        *mutants(solution, LOOP, f"(folder / 'best.pt').unlink(missing_ok=True)\n    {LOOP}"),
        *mutants(solution, SAVE, "save(folder)", 'save(f"step-{steps[-1]}.pt")'),
        *mutants(solution, "[:-last]", "[: -last - 1]", "[:0]", "[-last - 1 : -last]"),
        *mutants(solution, "if step != best", "if True"),
        mutant(by_folder, ("score > top", "score >= top")),
        mutant(by_folder, ("[0-9]*", "*")),
        mutant(by_folder, ("]}, -math.inf", "]}, 0.0"), ("if top > -math.inf", "if top > 0")),
    ],
}
