"""Ops/cli/commands/jobs."""
