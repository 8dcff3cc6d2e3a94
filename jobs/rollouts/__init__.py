"""Rollouts: what the launches of two lanes say, and the decision that follows; pure."""
