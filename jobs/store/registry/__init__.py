"""The registry of models: artifacts, versions, aliases, routes, rollouts."""
