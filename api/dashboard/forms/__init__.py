"""Forms of the dashboard as requests of the API, and requests as code."""
