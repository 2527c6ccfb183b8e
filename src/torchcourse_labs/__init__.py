"""The exercises of the course: a folder for each chapter. Students' notebooks never import them; `labcheck` does."""
