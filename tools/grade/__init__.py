"""Grade a class: `make grade SUBMISSIONS=folder`, on top of nbgrader. docs/grading.md is the page for instructors.

In reading order:

    collect     which files are submissions, whose and of which lab
    restore     the lab as handed out, with the student's code in it
    review      plain signs of cheating, for a person to look at
    sandbox     runs a notebook where nothing is within reach, made by bubblewrap
    inside      what runs there: the notebook, then each answer's judgment
    results     from what came out to verdicts, and the tables of the class
    book        nbgrader's gradebook and the feedback pages
    __main__    the command: all of these, for a class

A verdict does not come from the student's notebook. There, an answer is only packed (cloudpickle) where its check
stands. It is unpacked in a process that has loaded the checks before it met anything of the student's, and judged with
secret seeds; what the notebook did to `check`, to our modules, to IPython or to the screen stays behind in its own
process. A result that says itself what it equals is refused (`engine.comparable`), and so is an answer that replaced a
function of the course, PyTorch or Python by the end of its judgment.

What this does not withstand: an answer runs in the same process as the check that judges it, Python has no walls, and
an answer that walks up the stack while it runs can find the expected result, or put things back before anyone looks.
`review` notes the plain words for that; it can be evaded too. Grades that matter need a person who reads the code of
those who are noted, and of a sample of the others. An answer copied from a neighbor is right in every respect.
"""
