"""Filled-in copies of what Moodle and Canvas exported: the points are in, and no other byte is another."""

import csv
import io
import zipfile
from pathlib import Path

import pytest
from support.submissions import put

from tools import course
from tools.grade import __main__ as command
from tools.grade import platforms, sandbox

[LAB] = course.select(["02"])
NAMES = {"4711": "Zoë O'Brien", "4712": 'Ada "The_First" King, Countess', "4713": "Jürgen Müller"}

WORKSHEET = """\
Identifier,"Full name","Email address",Status,Grade,"Maximum grade","Grade can be changed",\
"Last modified (submission)","Last modified (grade)","Feedback comments"
"Participant 4711","Zoë O'Brien",zoe@example.org,"Submitted for grading",,100.00,Yes,"Monday, 2 March 2026, 8:01 AM",-,
"Participant 4712","Ada ""The_First"" King, Countess",ada@example.org,"Submitted - graded",12.00,100.00,Yes,-,-,"See me
after class"
"Participant 4714","Nobody, N.",n@example.org,"No submission",,100.00,Yes,-,-,
"""
GERMAN = """\
ID;"Vollständiger Name";E-Mail-Adresse;Status;Bewertung;Bestwertung;"Bewertung kann geändert werden";\
"Zuletzt geändert (Bewertung)";"Feedback als Kommentar"
Teilnehmer/in4711;"Zoë O'Brien";zoe@example.org;"Zur Bewertung abgegeben";"";"10,00";Ja;-;"Lab 02: 0 of 4 points"
Teilnehmer/in4713;"Jürgen Müller";j@example.org;"Zur Bewertung abgegeben";"";"10,00";Ja;-;
"""
GRADEBOOK = '''\
Student,ID,SIS User ID,SIS Login ID,Section,Lab 01: Tensors (70),Lab 02: The training loop (71),Labs Current Score
,,,,,Manual Posting,,
    Points Possible,,,,,5.00,4.00,(read only)
"O'Brien, Zoë",4711,,zoe,"Spring, 1",4.50,,90.00
"King, Ada",4712,s2,ada,"Spring, 1",N/A,EX,
"=""=Müller""",4713,s3,jm,"Spring, 1",,1.00,
"Student, Test",4799,,t,"Spring, 1",,,
'''


@pytest.fixture
def out(tmp_path):
    """The results of three students in lab 02, and of one in another."""
    folder = tmp_path / "out"
    status = ["", "", "time limit: 1 cell was interrupted"]
    rows = [["student", "lab", "points", "max", "status", "name", "id"], ["Zoe", "01_tensors", 5, 5, "", "Zoë", "4711"]]
    rows += [[f"s{id}", LAB.name, 3, 4.0, why, NAMES[id], id] for id, why in zip(NAMES, status, strict=True)]
    said = [["student", "lab", "exercise", "outcome", "message"], ["s4711", LAB.name, "one_step", "correct", "Yes."]]
    said += [[f"s{id}", LAB.name, "drop", "error", 'Is "a<b>" x → 3?\nC:\\'] for id in NAMES]
    for name, table in {"grades": rows, "exercises": said}.items():
        text = io.StringIO()
        csv.writer(text).writerows(table)
        put(folder / f"{name}.csv", text.getvalue())
    for id in NAMES:
        put(folder / "feedback" / f"s{id}" / f"{LAB.name}.html", f"page of {id}")
    return folder


def filled(out: Path, read, data: bytes, column: str = "") -> tuple[bytes, str]:
    """The copy of a file, and the summary; the file itself stays."""
    path = out.parent / "from platform.csv"
    path.write_bytes(data)
    said = read(path, LAB, column).fill(out)
    assert path.read_bytes() == data
    return (out / path.name).read_bytes(), said


@pytest.mark.parametrize("begin", ["", "\ufeff"])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_worksheet_gets_grades_and_comments(out, begin, end):
    data = (begin + WORKSHEET).replace("\n", end)
    text, said = filled(out, platforms.moodle, data.encode())
    comment = "Lab 02: 3 of 4 points<br>drop: Is 'a&lt;b>' x → 3?<br>C:"
    expected = data.replace('grading",,', 'grading",75.00,').replace(",12.00,", ",75.00,")
    assert text.decode() == expected.replace(f'AM",-,{end}', f'AM",-,{comment}{end}')
    assert 'points for 2 of 3 students, in the column "Grade", scaled from 4 points to 100' in said
    assert "Not handed in, 1: Participant 4714, Nobody, N." in said
    assert "not in from platform.csv, 1: Jürgen Müller 4713" in said
    assert 'a person wrote, which stays, 1: Ada "The_First" King, Countess 4712' in said


@pytest.mark.parametrize(("codec", "delimiter"), [("utf-8-sig", ";"), ("cp1252", ";"), ("utf-8", "\t")])
def test_worksheet_in_another_language_has_its_own_decimals_delimiter_and_quotes(out, codec, delimiter):
    data = GERMAN.replace(";", delimiter)
    text, _ = filled(out, platforms.moodle, data.encode(codec))
    comment = f"drop: Is 'a&lt;b>' x {'&#8594;' if codec == 'cp1252' else '→'} 3?<br>C:"
    expected = data.replace('""', '"7,50"').replace("Lab 02: 0 of 4 points", f"Lab 02: 3 of 4 points<br>{comment}")
    comment = f"Lab 02: 3 of 4 points<br>time limit: 1 cell was interrupted<br>{comment}"
    quoted = f'"{comment}"' if delimiter == ";" else comment  # there is one in it
    assert text.decode(codec) == expected.replace(f"-{delimiter}\n", f"-{delimiter}{quoted}\n")


def test_archive_has_the_folders_that_moodle_splits_at_underscores(out):
    filled(out, platforms.moodle, WORKSHEET.encode())
    with zipfile.ZipFile(out / f"{LAB.name}-feedback.zip") as archive:
        found = {tuple(name.split("_")): archive.read(name).decode() for name in archive.namelist()}
    rest = ("assignsubmission", "file", "/feedback.html")
    assert found == {
        ("Zoë O'Brien", "4711", *rest): "page of 4711",
        ('Ada "The First" King, Countess', "4712", *rest): "page of 4712",
    }


def test_gradebook_gets_one_column(out):
    text, said = filled(out, platforms.canvas, GRADEBOOK.encode())
    assert text.decode() == GRADEBOOK.replace("4.50,,90", "4.50,3.00,90").replace(",1.00,", ",3.00,")
    assert (
        'points for 2 of 4 students, in the column "Lab 02: The training loop (71)"\n' in said
    )  # 4 points here and there: not scaled
    assert "Countess 4712 (EX)" in said and "Not handed in, 1: Student, Test, 4799" in said
    assert not list(out.glob("*.zip"))


def test_what_is_not_clear_is_asked(out, tmp_path):
    homework = GRADEBOOK.replace("Lab 02: The training loop", "Homework")
    with pytest.raises(SystemExit, match=r'There are "Lab 01: Tensors \(70\)", "Homework \(71\)".*--column'):
        filled(out, platforms.canvas, homework.encode())
    assert ",3.00,90" in filled(out, platforms.canvas, homework.encode(), "Homework (71)")[0].decode()
    for read, data, why in [
        (platforms.canvas, GRADEBOOK.replace("4.00", "0.00"), "no points possible"),
        (platforms.canvas, WORKSHEET, "no gradebook export of Canvas"),
        (platforms.moodle, GRADEBOOK, "no grading worksheet"),
        (platforms.moodle, WORKSHEET.replace("100.00", "Good"), "no one column"),
    ]:
        with pytest.raises(SystemExit, match=why):
            filled(out, read, data.encode())
    with pytest.raises(SystemExit, match="a scale"):
        filled(out, platforms.moodle, WORKSHEET.replace("100.00", "Good").encode(), "Grade")
    with pytest.raises(SystemExit, match="would replace"):
        platforms.one_lab(out / "worksheet.csv", out, [LAB])
    with pytest.raises(SystemExit, match=r"Handed in: 00_getting_started, 01_tensors\. Name one: CHAPTERS"):
        platforms.one_lab(tmp_path / "worksheet.csv", out, course.select(["00", "01"]))


def test_command_fills_the_file_after_grading(out, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(sandbox, "why_not", lambda: "")
    monkeypatch.setattr(command, "grade", lambda *anything: 0)
    (tmp_path / "in").mkdir()
    words = [str(tmp_path / "in"), "--out", str(out), "--synthetic", "--chapters", "02", "--moodle"]
    with pytest.raises(SystemExit, match="cannot be read"):
        command.main([*words, str(tmp_path / "nowhere.csv")])
    worksheet = put(tmp_path / "worksheet.csv", WORKSHEET)
    assert command.main([*words, str(worksheet)]) == 0
    assert "points for 2 of 3 students" in capsys.readouterr().out and (out / "worksheet.csv").exists()
