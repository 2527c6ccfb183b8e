"""Beyond Python: export, preprocessing inside, answers compared, int8 by rows, operators in Python and C++, ONNX."""

CHAPTER = "12_beyond_python"
EXERCISES = ("exportable", "with_preprocessing", "same_answers", "quantize_rows", "my_op", "stable_rows", "to_onnx")
