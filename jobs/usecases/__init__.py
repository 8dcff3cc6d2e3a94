"""One file a use case: submit, cancel, tenant files, webhook secret and message."""
