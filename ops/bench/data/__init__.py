"""Texts and arrivals of the benchmarks: made from seeds, or real ones from a folder."""
