"""Load generator, client and servers of benchmarks."""
