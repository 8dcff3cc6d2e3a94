"""Calls on their way from an api process to the worker that can launch them now.

They wait in central lanes, one per batch key and length bucket; workers pull. The calls of a worker
that dies run once more, each alone. All of it may be lost with Redis at any moment: the api then
rejects the call, and no job is affected.
"""
