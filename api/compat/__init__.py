"""Api/compat."""
