"""Reports, statistics and plots of benchmarks."""
