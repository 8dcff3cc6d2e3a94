"""How many replicas a pool should have: its load, its policy, and the decision. No thread, no
clock, no connection: the keeper and the simulator run the same functions."""
