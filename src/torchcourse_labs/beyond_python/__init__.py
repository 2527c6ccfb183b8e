"""Beyond Python: export, preprocessing inside, answers compared, int8 by rows, an operator, a server, ONNX."""

CHAPTER = "12_beyond_python"
EXERCISES = ("exportable", "with_preprocessing", "same_answers", "quantize_rows", "my_op", "batch_latency", "to_onnx")
