"""Systems that benchmarks compare with."""
