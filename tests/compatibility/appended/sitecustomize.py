"""Appends the packages in APPENDED_PACKAGES to those of an environment: torch, which is too large
to install again."""

import os
import sys

sys.path.append(os.environ["APPENDED_PACKAGES"])
