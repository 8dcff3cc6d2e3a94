"""Routing of calls to versions of a model: routes, rollouts and aliases; pure."""
