"""Jobs/models/engines."""
