"""From request lines to COPY rows: validate, split into slices, spool."""
