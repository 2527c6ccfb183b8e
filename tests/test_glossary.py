"""The glossary: terms as the lectures mark them, each with a sentence that says what it means."""

import pytest

from tools import course, glossary
from torchcourse.errors import CourseError


def lecture(root, text):
    """The terms of one lecture with this text."""
    chapter = course.chapters()[2]
    (root / "notebooks").mkdir(exist_ok=True)
    kernel = "{name: python3, display_name: Python 3, language: python}"
    header = f"---\njupytext: {{text_representation: {{format_name: myst}}}}\nkernelspec: {kernel}\n---\n\n"
    (root / "notebooks" / f"{chapter.name}.md").write_text(header + text)
    return list(glossary.terms_of(chapter, root))


def test_a_term_comes_with_its_sentence_and_its_section(tmp_path):
    (term,) = lecture(tmp_path, "## Again\n\nRead on. One pass through\nall images is an <dfn>epoch</dfn>. More.\n")
    assert (term.name, term.section) == ("epoch", "Again")
    assert term.meaning == "One pass through all images is an **epoch**."
    assert term.link == "[02 · Again](../notebooks/02_training_loop.ipynb#again)"


def test_a_sentence_that_points_back_brings_the_one_before_it(tmp_path):
    (term,) = lecture(tmp_path, "Skip me. It moves against its gradient. This is <dfn>gradient descent</dfn>.")
    assert term.meaning == "It moves against its gradient. This is **gradient descent**."
    (term,) = lecture(tmp_path, "PyTorch waits. The wait is a <dfn>synchronization</dfn>.")
    assert term.meaning == "PyTorch waits. The wait is a **synchronization**."


def test_names_lose_only_the_capital_of_their_sentence(tmp_path):
    text = "<dfn>Dropout</dfn> zeroes some values in training.\n\nIt was trained with <dfn>Muon</dfn>, an optimizer.\n"
    assert [t.name for t in lecture(tmp_path, text)] == ["dropout", "Muon"]


def test_a_list_item_is_a_sentence_of_its_own(tmp_path):
    text = "Two kinds:\n\n- <dfn>Collective</dfn>: all ranks take part in it.\n- [Other](https://x.org) ones.\n"
    assert [t.meaning for t in lecture(tmp_path, text)] == ["**Collective**: all ranks take part in it."]


def test_a_term_is_defined_once_in_a_chapter(tmp_path, monkeypatch):
    lecture(tmp_path, "An <dfn>epoch</dfn> is one pass through all images.\n\nAn <dfn>epoch</dfn> is long enough.\n")
    monkeypatch.setattr(glossary.course, "chapters", lambda root: course.manifest() and [CHAPTER])
    with pytest.raises(CourseError, match="defines 'epoch' twice"):
        glossary.terms(tmp_path)


CHAPTER = course.chapters()[2]


def test_every_lecture_defines_terms_and_each_says_enough():
    found = glossary.terms()
    lectures = {
        chapter.name for chapter in course.chapters() if (course.ROOT / "notebooks" / f"{chapter.name}.md").exists()
    }
    assert {term.chapter.name for term in found} == lectures
    for term in found:
        assert len(term.meaning.split()) >= 7 and "<" not in term.meaning.replace("<=", ""), term


def test_the_page_is_that_of_the_lectures():
    assert (course.ROOT / glossary.PAGE).read_text() == glossary.page(), "run `make build`"
