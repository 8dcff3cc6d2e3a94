"""The schema, by Alembic. SQL is written out: what runs is what you read."""
