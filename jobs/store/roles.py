"""Roles of processes in the database: both own nothing; the api sees the tenant that a transaction
names. A supervisor names them without loading SQLAlchemy."""

API, WORKER = "millrace_api", "millrace_worker"
