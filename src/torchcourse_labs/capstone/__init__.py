"""Exercises of chapter 13: a project, from the data set to a server."""

CHAPTER = "13_capstone"
EXERCISES = (
    "project_data",
    "project_model",
    "project_resume",
    "project_two",
    "project_precision",
    "project_export",
    "project_budget",
    "project_serve",
)
