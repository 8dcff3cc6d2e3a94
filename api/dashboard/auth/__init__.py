"""Who looks: viewer, session cookie, OIDC login."""
