"""The glossary: terms as the lectures mark them, each with a sentence that says what it means."""

import pytest

from tools import course, glossary

HEAD = "---\nkernelspec: {name: python3, display_name: Python 3, language: python}\n---\n\n"


def terms(root, text):
    """The terms of a course with this one lecture."""
    (root / "notebooks").mkdir()
    (root / "course.toml").write_text((course.ROOT / "course.toml").read_text())
    (root / "notebooks" / f"{course.chapters()[2].name}.md").write_text(HEAD + text)
    return list(glossary.terms(root))


def test_a_term_comes_with_its_sentence_and_its_section(tmp_path):
    text = "## Again\n\nRead on. One pass through\nall images is an <dfn>epoch</dfn>. More.\n"
    where = "[02 · Again](../notebooks/02_training_loop.ipynb#again)"
    assert terms(tmp_path, text) == [("epoch", "One pass through all images is an **epoch**.", where)]


@pytest.mark.parametrize(
    ("text", "name", "meaning"),
    [
        ("No. It moves. This is <dfn>descent</dfn>.", "descent", "It moves. This is **descent**."),
        ("It waits. The wait is a <dfn>stop</dfn>.", "stop", "It waits. The wait is a **stop**."),
        ("It was then trained with <dfn>Muon</dfn>, an optimizer.", "Muon", None),
        ("<dfn>Dropout</dfn> zeroes some values during training.", "dropout", None),
        ("Two:\n\n- <dfn>Sum</dfn>: all ranks add up.\n- B", "sum", "**Sum**: all ranks add up."),
        ("A <dfn>hub</dfn> is what [all](https://x.org) call one.", "hub", "A **hub** is what all call one."),
    ],
)
def test_the_sentence_is_whole_and_says_enough(text, name, meaning, tmp_path):
    [(found, said, _)] = terms(tmp_path, text)
    assert found == name and meaning in (None, said)


def test_every_lecture_defines_terms_once_and_each_says_enough():
    found = list(glossary.terms())
    places = [(name, where[:3]) for name, _, where in found]
    assert len(set(places)) == len(places)
    assert {where[1:3] for _, _, where in found} == {c.number for c in course.chapters() if c.lecture_minutes}
    for _, meaning, _ in found:
        assert len(meaning.split()) >= 7 and "<" not in meaning.replace("<=", ""), meaning
