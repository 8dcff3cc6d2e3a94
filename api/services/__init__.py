"""Services of the Context, which live as long as the process."""
