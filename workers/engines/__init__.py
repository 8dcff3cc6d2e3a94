"""Engines, each in its file. One is imported when it is chosen: torch loads with `minilm` or
`encoder`."""
