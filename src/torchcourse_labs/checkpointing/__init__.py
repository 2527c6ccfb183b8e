"""The exercises of chapter 09: files that are never half, the right ones kept, a training that stops and goes on."""

CHAPTER = "09_checkpointing"
EXERCISES = ("write_safely", "keep_files", "everything", "load_any", "last_minute", "bad_stops", "reshard")
