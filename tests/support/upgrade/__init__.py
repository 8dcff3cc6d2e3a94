"""The newest release and this code, as one fleet."""
