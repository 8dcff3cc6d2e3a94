"""Native routes on jobs, and what they share (look-up, verbs, transfers)."""
