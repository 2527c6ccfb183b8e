"""docs/claims.md: made from the tagged cells of the lectures, and up to date."""

import re

import pytest

from tools import build, claims, course
from torchcourse.errors import CourseError

CELL = """---
kernelspec:
  display_name: Python 3
  language: python
  name: python3
---

## Half a number

### In `half()`

```{{code-cell}}
{head}
x = 1
```
"""
SAYS = """---
tags: [nbval-check-output, claim]
claim:
  text: 'Everything is | fast'
  met: forum answers
  here: It is not.
---"""


def course_with(root, head: str):
    """The chapters of a course whose first lecture has one cell with these first lines."""
    (root / "notebooks").mkdir()
    (root / "notebooks" / "00_getting_started.md").write_text(CELL.format(head=head))
    (root / "course.toml").write_text(
        (course.ROOT / "course.toml").read_text().split('\n[[chapter]]\nnumber = "01"')[0]
    )
    (root / "constraints.txt").write_text("torchvision==0.1\ntorch==2.99.1\n")
    return root


def test_the_page_is_what_the_lectures_say():
    assert (course.ROOT / claims.PAGE).read_text(encoding="utf-8") == claims.page(), "run `make build`"


def test_every_link_leads_to_a_section_of_a_lecture():
    for claim in claims.claims():
        lecture = (course.ROOT / "notebooks" / f"{claim.chapter.name}.md").read_text(encoding="utf-8")
        assert re.search(rf"^#+ {re.escape(claim.section)}$", lecture, re.M), claim
        assert claim.text and claim.met and claim.here


def test_the_tag_reaches_the_notebook():
    """Other tools find the claim in the metadata of the cell, too."""
    [chapter] = [chapter for chapter in course.chapters() if chapter.slug == "mixed_precision"]
    cells = build.edition(chapter, "lecture").cells
    tagged = [cell for cell in cells if claims.TAG in cell.metadata.get("tags", [])]
    found = [claim for claim in claims.claims() if claim.chapter == chapter]
    assert found and [cell.metadata["claim"]["text"] for cell in tagged] == [claim.text for claim in found]


def test_a_claim_becomes_a_row(tmp_path):
    [claim] = claims.claims(course_with(tmp_path, SAYS))
    assert claim.link == "[00 · In `half()`](../notebooks/00_getting_started.ipynb#in-half)"
    heading, _, row = claims.page(tmp_path).splitlines()[-3:]
    assert "what PyTorch 2.99.1 says" in heading
    assert row == f"| Everything is \\| fast | forum answers | {claim.link} | It is not. |"


@pytest.mark.parametrize(
    "head",
    [
        ":tags: [claim]",
        SAYS.replace(", claim", ""),
        SAYS.replace("  met: forum answers\n", ""),
        SAYS.replace("  met:", "  where:"),
    ],
    ids=["no words", "no tag", "a word is missing", "another word"],
)
def test_a_cell_that_says_half_of_it_is_named(tmp_path, head):
    with pytest.raises(CourseError, match=r"In `half\(\)`.* 00_getting_started\.md .*text, met, here"):
        claims.claims(course_with(tmp_path, head))
