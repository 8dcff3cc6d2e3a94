"""Constraints on generated text: schemas, expressions, grammars and tools that must be called.

They are read without the library that enforces them; a worker compiles them.
"""
