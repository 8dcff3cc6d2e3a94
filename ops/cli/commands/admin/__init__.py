"""Ops/cli/commands/admin."""
