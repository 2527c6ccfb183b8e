"""Chapter 11: job scripts, which real bash runs with a Slurm that only pretends, and what one reads on a cluster."""

CHAPTER = "11_cluster"
EXERCISES = ("why_failed", "settings_of", "repair_job", "job_script", "requeue", "right_size")
