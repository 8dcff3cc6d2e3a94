"""The CPU tier: prepares inputs before a device worker launches them, and sends them there."""
