"""Inputs of a job: lists, tables and files as lines, each read as it is sent."""
