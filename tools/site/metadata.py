"""What search engines and training portals read of a chapter: schema.org's LearningResource, as JSON-LD in its page.

It has what Bioschemas' profile TrainingMaterial requires, from course.toml, and as keywords the terms of the lecture.
"""

from pathlib import Path

from tools import course, glossary
from tools.course import ROOT

PROFILE = "https://bioschemas.org/profiles/TrainingMaterial/1.0-RELEASE"
LICENSES = ["https://creativecommons.org/licenses/by/4.0/", "https://spdx.org/licenses/BSD-3-Clause.html"]  # text, code


def resources(root: Path = ROOT) -> dict[str, dict]:
    """By the name of the page that a chapter begins with, as Sphinx has it: notebooks/01_tensors."""
    home, title, found = course.home(root), course.manifest(root)["title"], {}
    terms = [(where[1:3], name) for name, _, where in glossary.terms(root)]
    for chapter in course.chapters(root):
        page = chapter.first.removesuffix(".ipynb")
        found[page] = {
            "@context": "https://schema.org/",
            "@type": "LearningResource",
            "@id": f"{home}{page}.html",
            "http://purl.org/dc/terms/conformsTo": {"@type": "CreativeWork", "@id": PROFILE},
            "name": chapter.title,
            "description": chapter.promise,
            "url": f"{home}{page}.html",
            "keywords": ["PyTorch", *dict.fromkeys(name for number, name in terms if number == chapter.number)],
            "teaches": chapter.goals,
            "competencyRequired": chapter.needs,
            "timeRequired": f"PT{chapter.lecture_minutes + chapter.lab_minutes}M",
            "learningResourceType": [*chapter.published],
            "inLanguage": "en-US",
            "license": LICENSES,
            "isPartOf": {"@type": "Course", "name": title, "url": home},
        }
    return found
