"""Process that holds a model: `python -m workers.engines.transformers.child`."""
