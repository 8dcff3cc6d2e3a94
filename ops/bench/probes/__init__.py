"""CPU, memory, GPU of processes."""
