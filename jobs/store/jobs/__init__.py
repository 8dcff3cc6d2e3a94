"""Jobs and items: insert, read, search, verbs, transfers, retention, deletion."""
