"""Items of a leased slice: inputs, payloads, results as rows."""
