"""Child processes of an api (large bodies) and of a keeper (transfers), and fork servers."""
