"""Results of jobs: files that they are written to, and the comparison of two."""
