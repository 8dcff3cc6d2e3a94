"""Generation in a worker: a host that decides at every step which sequences are in it, and its
scheduler, which has neither thread nor clock."""
