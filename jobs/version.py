"""Version of the installed package; pyproject.toml defines it."""

from importlib.metadata import version

VERSION = version("millrace")
