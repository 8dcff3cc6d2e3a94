"""Hostile inputs and the functions that read them."""
