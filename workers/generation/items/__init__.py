"""Items of a generation host: queued, taken back, checkpointed."""
