"""Advice of keepers to workers, by figures that only keepers see together."""
