"""The course as a website: `python -m tools.site` writes build/site, which opens by double click and needs no network.

    sources.py    gathers what the site is made of into one folder: the executed lectures, the labs without answers, the
                  guide in docs/, the slides, and pages written from course.toml; notebook.py puts links below a
                  chapter's title and folds its set-up cell, and leaves the notebook itself as it is
    conf.py       Sphinx turns that folder into pages (myst-nb for notebooks, pydata-sphinx-theme for the looks)
    metadata.py   what search engines and training portals read of a chapter
    docstrings.py the docstrings of `torchcourse` are plain English, Sphinx wants reStructuredText
    check.py      opens every page that was built and follows every link

theme/ holds the style sheet, the logo and the templates of the pages that are no notebooks.
"""
