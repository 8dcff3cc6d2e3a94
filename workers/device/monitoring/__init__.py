"""Workers/device/monitoring."""
