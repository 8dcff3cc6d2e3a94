"""Commands that `millrace simulate` is with certain options."""
