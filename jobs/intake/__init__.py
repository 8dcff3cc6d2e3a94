"""Intake of jobs: request lines are validated, cut into slices and spooled as COPY rows."""
