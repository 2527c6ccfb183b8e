"""Exercises of chapter 00: a first gradient and an average digit."""

CHAPTER = "00_getting_started"
EXERCISES = ("slope", "average_digit")
