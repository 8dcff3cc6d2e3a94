"""Ops/cli/commands/platform."""
