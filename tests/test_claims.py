"""docs/claims.md: made from the tagged cells of the lectures, and up to date."""

import re

import pytest

from tools import claims, course
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


def test_every_claim_leads_to_a_section_of_a_lecture():
    for text, met, link, here in claims.claims():
        section, name = re.match(r"\[\d\d · (.+)\]\(\.\./notebooks/(\w+)\.ipynb#", link).groups()
        lecture = (course.ROOT / "notebooks" / f"{name}.md").read_text(encoding="utf-8")
        assert re.search(rf"^#+ {re.escape(section)}$", lecture, re.M), link
        assert text and met and here


def test_a_claim_becomes_a_row(tmp_path):
    heading, _, row = claims.page(course_with(tmp_path, SAYS)).splitlines()[-3:]
    link = "[00 · In `half()`](../notebooks/00_getting_started.ipynb#in-half)"
    assert "what PyTorch 2.99.1 says" in heading
    assert row == f"| Everything is \\| fast | forum answers | {link} | It is not. |"


@pytest.mark.parametrize("head", [":tags: [claim]", SAYS.replace("  met: forum answers\n", "")])
def test_a_cell_that_says_half_of_it_is_named(tmp_path, head):
    with pytest.raises(CourseError, match=r"In `half\(\)`.* 00_getting_started\.md .*text, met, here"):
        claims.claims(course_with(tmp_path, head))
