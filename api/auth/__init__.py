"""From a credential to a Caller; the audit trail; may this address be listened on."""
