"""All SQL. Functions take an open transaction; who opened it commits it.

One lock order everywhere: slices by (job_id, start), then jobs by id.
"""
