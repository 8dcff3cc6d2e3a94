"""`millrace bench streams`: streams and items that survive, adapters, structured output."""
