"""Grade a class: `make grade SUBMISSIONS=folder`, on top of nbgrader. docs/grading.md is the page for instructors.

In reading order:

    collect     which files are submissions, whose and of which lab
    restore     the lab as handed out, with the student's code in it
    review      plain signs of cheating, for a person to look at
    sandbox     runs a notebook where nothing is within reach, made by bubblewrap
    judge       one submission: its notebook in a sandbox, the verdicts outside of it
    in_sandbox  what runs in the sandbox: its limits (start), the notebook (run_submission), how data crosses (wire)
    results     from what came out to verdicts, and the tables of the class
    gradebook   nbgrader's gradebook and the feedback pages
    shutdown    how a run ends: its tables written, nothing left behind
    __main__    the command: all of these, for a class

A verdict does not come from the student's notebook. The grader sends inputs to the answer, and judges the plain data
that comes back outside the sandbox. docs/grading.md says what that withstands.
"""
