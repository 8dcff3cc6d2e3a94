"""Why something is slow or stands still, in words: rules over what the processes report."""

from jobs.explain.diagnosis import Diagnosis
from jobs.explain.facts import Facts
from jobs.explain.rules import diagnose

__all__ = ["Diagnosis", "Facts", "diagnose"]
