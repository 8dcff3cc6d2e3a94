"""Calls on their way from an api process to the worker that can launch them now.

They wait in central lanes, one per batch key and length bucket; workers pull. Whatever is in
here may be lost at any moment: a call then runs into its deadline, and no job is hurt.
"""
