"""Exercises of chapter 01: a reader of handwritten digits from nothing but tensor operations."""

CHAPTER = "01_tensors"
EXERCISES = ("scale_pixels", "view_or_copy", "normalize", "pairwise_distances", "confusion_matrix", "patches")
