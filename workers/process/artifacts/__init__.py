"""Files of models in artifacts: verified, staged in the cache of the host, and pinned there."""
