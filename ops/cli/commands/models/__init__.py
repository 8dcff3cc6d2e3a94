"""Commands on models: versions, aliases, routes, rollouts, known answers."""
