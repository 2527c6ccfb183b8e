"""What authors and CI run. No notebook imports it."""

import os

os.environ.setdefault("TORCHCOURSE_PROGRESS", "off")  # a notebook that a tool executes is no student's progress
