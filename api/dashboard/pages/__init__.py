"""Pages of the dashboard: each loads its data and renders a template."""
