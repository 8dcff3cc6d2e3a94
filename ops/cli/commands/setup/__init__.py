"""Ops/cli/commands/setup."""
