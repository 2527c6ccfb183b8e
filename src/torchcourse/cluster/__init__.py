"""Clusters: a practice cluster on one machine, and job scripts for the schedulers of real ones."""
