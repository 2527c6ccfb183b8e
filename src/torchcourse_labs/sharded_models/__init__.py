"""The exercises of chapter 10: models in pieces, on paper, in a fake world of eight ranks, or on two real ones."""

CHAPTER = "10_sharded_models"
EXERCISES = ("memory_of", "shard_model", "sharded_linear", "clip_sharded", "batch_rows", "born_sharded")
