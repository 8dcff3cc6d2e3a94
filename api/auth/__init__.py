"""Authentication, the audit trail, and the check of the address to bind to."""
