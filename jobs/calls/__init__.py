"""Calls on their way from an api process to the worker that can launch them now.

They wait in central lanes, one per batch key and length bucket; workers pull. A worker that dies
gives back what it had in hand: each of those calls runs once more, alone. Whatever is in here may
be lost with Redis at any moment: the api then refuses the call, and no job is hurt.
"""
