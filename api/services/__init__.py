"""Objects that the Context holds for the life of the process."""
