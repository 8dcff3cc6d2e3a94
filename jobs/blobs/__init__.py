"""Payloads too large for a row: a local folder or S3 keeps them, and the row keeps a reference.

The store is dumb (put, get, delete by prefix); keys, limits and checksums are `payloads.py`'s.
"""
