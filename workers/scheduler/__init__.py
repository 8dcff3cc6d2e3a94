"""Batching policy: pure functions over lanes and a clock, without threads, sockets or torch.

The worker, the unit tests on a fake clock and the simulator run the same code.
"""
