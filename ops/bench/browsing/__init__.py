"""`millrace bench dashboard`: pages over a database that has been in use for a long time."""
