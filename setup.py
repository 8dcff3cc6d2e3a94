"""Packages of the distribution: pyproject.toml can't name both those to find and a mapped one."""

from setuptools import find_packages, setup

_CLIENT = "ops.client"  # its folder is `millrace` too: pyproject.toml says where that is
_FOUND = find_packages(include=["api*", "jobs*", "migrations*", "ops*", "workers*"])

setup(
    packages=_FOUND
    + [name.replace(_CLIENT, "millrace", 1) for name in _FOUND if name.startswith(_CLIENT)]
)
