"""Diagnosis: rules that find why something is slow or stuck, from the reports of processes."""

from jobs.explain.diagnosis import Diagnosis
from jobs.explain.facts import Facts
from jobs.explain.rules import diagnose

__all__ = ["Diagnosis", "Facts", "diagnose"]
