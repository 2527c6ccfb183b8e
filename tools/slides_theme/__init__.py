"""What the modules that build and check slides share: the folder of the theme, and their error."""

from pathlib import Path

THEME = Path(__file__).resolve().parent


class SlidesError(Exception):
    """A sentence for the author or the user: what is wrong and what to do."""
