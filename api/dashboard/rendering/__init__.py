"""Layout, charts, formatting, live updates, error pages."""
