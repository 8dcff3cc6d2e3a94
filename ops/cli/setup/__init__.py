"""The first hour on a machine: its folder, its settings, and what it lacks."""
