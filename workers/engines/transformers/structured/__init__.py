"""Structured output: grammars of requests, compiled by llguidance, and what they mask."""
