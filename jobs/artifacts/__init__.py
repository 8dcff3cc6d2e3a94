"""Artifacts: folders of a model's files, by the SHA-256 of what is in them.

manifest   every file with its size and SHA-256; the digest over all names the artifact
bundle     a signature of that, in the format of OpenSSF Model Signing
trust      keys that may sign, and since when and until when
push       files into the blob store, by their SHA-256
cache      files of this host's workers, which engines load from
"""
