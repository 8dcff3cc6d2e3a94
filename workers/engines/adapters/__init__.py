"""Adapters (LoRA) in memory: their files, their matrices, and the slots that hold them."""
