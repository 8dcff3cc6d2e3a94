"""Report, statistics, plots."""
