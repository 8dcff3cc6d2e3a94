"""Plans for many models at once: placements from a history, beside the exact optimum."""
