"""Native routes for operators and admins."""
