"""All SQL. Functions take an open transaction, which their caller commits.

One lock order everywhere: slices by (job_id, start), then jobs by id.
"""
