"""Actuators: they bring pools to the number of workers that was decided on."""
