"""Native routes of jobs, and what they share: lookup, verbs, transfers."""
