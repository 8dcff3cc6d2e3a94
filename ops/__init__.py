"""Running it: the command line, embedded services, benchmarks, documentation. Nobody imports it."""
