"""`millrace bench rollout`: versions that arrive safely, one file a part."""
