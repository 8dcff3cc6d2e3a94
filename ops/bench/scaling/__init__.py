"""`millrace bench scaling`: the autoscaler, simulated and live."""
