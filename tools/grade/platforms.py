"""Points for a learning platform: a filled-in copy of the very file that it exported, to be uploaded again.

What the files look like is in the platforms' own sources:

    Moodle's grading worksheet   mod/assign/gradingtable.php writes it: first "Participant 4711", in the language of the
                                 teacher; the grade stands directly left of its maximum. mod/assign/feedback/offline
                                 reads it, and mod/assign/feedback/comments takes a comment for HTML.
    Moodle's feedback archive    mod/assign/feedback/file/importziplib.php splits the name of a folder at underscores:
                                 NAME_4711_assignsubmission_file_, so there is none in NAME.
    Canvas's gradebook           lib/gradebook_exporter.rb, gradebook_importer.rb: a column "Lab 02 (12345)" for each
                                 assignment, a row "Points Possible"; semicolons and decimal commas in some languages.

All cells but those with the grades and comments stay as they are in the file, byte for byte.
"""

import csv
import html
import re
import textwrap
import zipfile
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

from tools.course import Chapter
from tools.grade.collect import named_lab
from tools.grade.results import whole

NUMBER = re.compile(r"\d+([.,]\d+)?")
BLANK = ("", "-")  # a cell without a grade
COMMENTS = re.compile(r"feedback|[ck]omm?ent", re.IGNORECASE)  # in the title of their column, in most languages
TAG = re.compile(r"<(?=[a-z/!?])|&(?=[a-z#])", re.IGNORECASE)  # what HTML would not take for text


class Table:
    """A platform's file, cell by cell. Raises SystemExit with a sentence if it cannot be read."""

    def __init__(self, path: Path) -> None:
        try:
            data = path.read_bytes()
        except OSError as error:
            raise SystemExit(f"{path} cannot be read: {error.strerror}.") from None
        try:
            self.codec, text = "utf-8", data.decode()
        except UnicodeDecodeError:
            self.codec, text = "latin-1", data.decode("latin-1")  # each byte is a character, and comes back as it was
        self.path = path
        self.delimiter = max(",;\t", key=text.partition("\n")[0].count)
        self.cells: list[list[list[str]]] = [[]]  # of each row: a cell as it is in the file, and what ends it
        pattern = rf'(\ufeff?"(?:[^"]|"")*"|[^{self.delimiter}\r\n]*)({self.delimiter}|\r\n|\r|\n|\Z)'
        for cell, end in re.findall(pattern, text):
            self.cells[-1].append([cell, end])
            if end != self.delimiter:
                self.cells.append([])
        self.header, *rows = [[_unquoted(cell.lstrip("\ufeff")) for cell, _ in row] for row in self.cells]
        self.rows = {at: row for at, row in enumerate(rows, 1) if len(row) == len(self.header)}  # what the cells say

    def put(self, row: int, column: int, text: str) -> None:
        """Change a cell; it stays quoted if it was. There are no quotation marks in the text."""
        cell = self.cells[row][column]
        cell[0] = f'"{text}"' if cell[0].startswith('"') or self.delimiter in text else text

    def content(self) -> bytes:
        """The file."""
        return "".join(cell + end for row in self.cells for cell, end in row).encode(self.codec)


@dataclass
class Sheet:
    """Where in a platform's file the points of a lab go."""

    table: Table
    lab: Chapter
    people: dict[str, int]  # a student's number -> the row
    column: int
    most: str  # the platform's maximum, as the file has it
    comments: int | None = None  # their column
    archive: bool = False  # whether the platform takes a page for each student, too

    def fill(self, out: Path) -> str:
        """Write the copy, and the archive of pages, beside the results.

        Returns a summary for the terminal, which names everyone whose points are not in the copy.
        """
        table, lab, full, decimal = self.table, self.lab.name, _number(self.most), "," if "," in self.most else "."
        wrong = defaultdict(list)
        for each in _results(out / "exercises.csv", lab):
            if each["outcome"] != "correct":
                wrong[each["student"]].append(f"{each['exercise']}: {each['message']}")
        absent, left, pages, filled, scaled = dict(self.people), defaultdict(list), {}, 0, ""
        for each in _results(out / "grades.csv", lab, ""):  # also those whose files do not say which lab they are
            who, row = f"{each['name']} {each['id']}".strip(), self.people.get(each["id"])
            if row is None:
                left[f"Handed in, but not in {table.path.name}"].append(who)
                continue
            absent.pop(each["id"], None)
            page = out / "feedback" / each["student"] / f"{lab}.html"
            if page.exists():
                pages[f"{each['name'].replace('_', ' ')}_{each['id']}_assignsubmission_file_/feedback.html"] = page
            old = table.rows[row][self.column].strip()
            if not each["lab"] or not each["points"]:
                left["Without points"].append(f"{who} ({each['status']})")
            elif old not in BLANK and _number(old) is None:
                left["Left as the platform has it"].append(f"{who} ({old})")
            else:
                points, most = float(each["points"]), float(each["max"])
                table.put(row, self.column, f"{points / most * full:.2f}".replace(".", decimal))
                filled, scaled = filled + 1, f", scaled from {most:g} points to {full:g}" if most != full else ""
                said = [f"{points:g} of {most:g} points", each["status"], *wrong[each["student"]]]
                if self.comments is not None and not self._comment(row, said):
                    left["With points, but with a comment that a person wrote, which stays"].append(who)
        if absent:
            left["Not handed in"] = [", ".join(table.rows[row][:2]) for row in absent.values()]
        with whole(out / table.path.name) as file:
            file.buffer.write(table.content())
        lines = [
            f"{out / table.path.name}: points for {filled} of {len(self.people)} students, in the column "
            f'"{table.header[self.column]}"{scaled}'
        ]
        if self.archive:
            with whole(out / f"{lab}-feedback.zip") as file, zipfile.ZipFile(file.buffer, "w") as archive:
                for name, page in pages.items():
                    archive.write(page, name, zipfile.ZIP_DEFLATED)
            lines.append(f"{out / f'{lab}-feedback.zip'}: {len(pages)} pages for students")
        for what, names in left.items():
            text = f"{what}, {len(names)}: {'; '.join(names)}"
            lines += textwrap.wrap(text, 110, initial_indent="  ", subsequent_indent="    ")
        return "\n".join(lines)

    def _comment(self, row: int, said: list[str]) -> bool:
        """Put the texts into the cell for comments, unless it holds a person's. Tell whether they are in."""
        begin, old = f"Lab {self.lab.number}: ", self.table.rows[row][self.comments].strip()
        if old and not old.startswith(begin):
            return False
        lines = [TAG.sub(lambda found: html.escape(found[0]), line) for text in said for line in text.splitlines()]
        # PHP, which reads the file, takes a backslash before a quotation mark for more than a backslash.
        text = begin + "<br>".join(lines).replace('"', "'").rstrip("\\")
        codec = self.table.codec  # an old one lacks signs, for which HTML has codes
        self.table.put(row, self.comments, text.encode(codec, "xmlcharrefreplace").decode(codec))
        return True


def moodle(path: Path, lab: Chapter, wanted: str) -> Sheet:
    """Moodle's grading worksheet. wanted: the title of the grades' column, if it cannot be told otherwise.

    The titles are in the teacher's language. So a column is recognized by what it holds: grades or nothing, and right
    of it the maximum, the same in each row. Raises SystemExit with a sentence if the file is another, or not clear.
    """
    table = Table(path)
    people = {found[1]: at for at, row in table.rows.items() if (found := re.search(r"(\d+)\s*$", row[0]))}
    if not people or len(table.header) < 3:
        raise SystemExit(f'{path} is no grading worksheet of Moodle: no row begins with a cell as "Participant 4711".')
    columns = [[table.rows[at][column].strip() for at in people.values()] for column in range(len(table.header))]
    most = [len({*cells}) == 1 and _number(cells[0]) for cells in columns]  # where it is not a number above 0: false
    graded = [all(cell in BLANK or _number(cell) is not None for cell in cells) for cells in columns]
    found = [at for at in range(1, len(columns) - 1) if graded[at] and most[at + 1]]
    column = _one(path, lab, dict(enumerate(table.header[:-1])), found, wanted)
    if not most[column + 1]:
        raise SystemExit(f'{path}: right of "{wanted}" there is no maximum grade. Does the assignment use a scale?')
    comments = [at for at in range(column + 2, len(columns)) if COMMENTS.search(table.header[at])]
    return Sheet(table, lab, people, column, columns[column + 1][0], comments[0] if comments else None, archive=True)


def canvas(path: Path, lab: Chapter, wanted: str) -> Sheet:
    """Canvas's gradebook export. wanted: the title of the column, if that does not name the lab.

    Raises SystemExit with a sentence if the file is another, or it is not clear which column is the lab's.
    """
    table = Table(path)
    possible = next((row for row in table.rows.values() if "Points Possible" in row[0]), None)
    if "ID" not in table.header or possible is None:
        raise SystemExit(f'{path} is no gradebook export of Canvas: it has no column "ID" or no row "Points Possible".')
    identity = table.header.index("ID")
    people = {row[identity]: at for at, row in table.rows.items() if row[identity].isdigit()}
    titles = {at: title for at, title in enumerate(table.header) if re.search(r" \(\d+\)$", title)}
    found = [at for at, title in titles.items() if _names(title, lab)]
    column = _one(path, lab, titles, found, wanted)
    if not _number(possible[column]):
        raise SystemExit(f'{path}: "{titles[column]}" has no points possible. Set them in Canvas, and export it again.')
    return Sheet(table, lab, people, column, possible[column])


def one_lab(path: Path, out: Path, labs: list[Chapter]) -> Chapter:
    """The lab whose points go into a file. Raises SystemExit if there are several, or if a copy cannot lie in `out`."""
    if (out / path.name).resolve() == path.resolve() or path.name in ("grades.csv", "exercises.csv"):
        raise SystemExit(f"The filled-in copy would replace {out / path.name}. Move {path}, or give it another name.")
    if len(labs) != 1:
        names = ", ".join(lab.name for lab in labs) or "none"
        raise SystemExit(f"{path.name} takes the points of one lab. Handed in: {names}. Name one: CHAPTERS=01")
    return labs[0]


def _names(title: str, lab: Chapter) -> bool:
    """Tell whether the title of a column names the lab: "Lab 02", "lab2", "02_training_loop", "The training loop"."""
    named = named_lab(title)
    return bool(named and named[0] == lab) or lab.title.casefold() in title.casefold()


def _one(path: Path, lab: Chapter, titles: dict[int, str], found: list[int], wanted: str) -> int:
    """The column that was found, or that has the title `wanted`. Raises SystemExit if it is not exactly one."""
    if wanted:
        found = [column for column, title in titles.items() if title == wanted]
    if len(found) == 1:
        return found[0]
    what = f'there is no one column "{wanted}"' if wanted else f"no one column is clearly that of {lab.name}"
    listed = ", ".join(f'"{title}"' for title in titles.values())
    raise SystemExit(f'{path}: {what}. There are {listed or "none"}. Name one: --column "TITLE"')


def _number(cell: str) -> float | None:
    return float(cell.replace(",", ".")) if NUMBER.fullmatch(cell.strip()) else None


def _unquoted(cell: str) -> str:
    return cell[1:-1].replace('""', '"') if len(cell) > 1 and cell[0] == cell[-1] == '"' else cell


def _results(path: Path, *labs: str) -> list[dict[str, str]]:
    """Those rows of one of our tables that are about these labs."""
    with open(path, encoding="utf-8", newline="") as file:
        return [row for row in csv.DictReader(file) if row["lab"] in labs]
