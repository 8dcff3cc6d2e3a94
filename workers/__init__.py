"""Execution: the Celery worker, its scheduler and engines, the keeper. Imports without torch."""
