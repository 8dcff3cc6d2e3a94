"""The batching policy: pure functions over lanes and a clock. No thread, no socket, no torch.

The worker, the unit tests on a fake clock and the simulator run the same code.
"""
