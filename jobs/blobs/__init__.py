"""Payloads too large for a row: a folder or S3 stores them, and the row has a reference.

A store puts, gets and deletes bytes; `payloads.py` decides about keys, limits and checksums.
"""
