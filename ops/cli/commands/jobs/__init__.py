"""Commands on jobs and calls."""
