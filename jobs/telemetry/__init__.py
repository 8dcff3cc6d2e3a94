"""What the processes tell of themselves: metrics, reports of the last minute, traces, logs."""
