"""Workers of one model that differ in speed: tiers, admission beside them, looks."""
