"""The schema, by Alembic, in SQL that is written out."""
