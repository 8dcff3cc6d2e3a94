"""Authentication of viewers: session cookie, sign-in, OIDC."""
