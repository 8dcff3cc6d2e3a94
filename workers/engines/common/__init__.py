"""Parts that engines share."""
