"""Placement of models on devices by memory and throughput: greedy, with relocation, and what it
costs. Pure: `millrace plan`, benchmarks and tests run the same functions."""
