"""Exercises of chapter 00: a tensor like another one, a first gradient, an average digit."""

CHAPTER = "00_getting_started"
EXERCISES = ("filled_like", "slope", "average_digit")
