"""Engine `transformers`: causal language models of Hugging Face, batched step by step.

The modules here belong to the parent, which loads no torch. Those in `child` run in the process
that holds weights and KV cache; its loop is `child/batch.py`.
"""
