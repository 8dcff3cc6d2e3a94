"""Classifiers of images: decoding, networks, and a model that a package carries."""
