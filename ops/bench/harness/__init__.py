"""Platform, scale, errors, model files, a filled database."""
