"""The queue: claim, settle, reap, finish, fair share, workers."""
