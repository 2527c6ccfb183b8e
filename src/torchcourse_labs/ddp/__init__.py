"""The exercises of chapter 06: data parallel training, judged by what two or three real processes do."""

CHAPTER = "06_ddp"
EXERCISES = ("shard_indices", "average_gradients", "exact_score", "train_replicas", "repair_replicas", "one_message")
