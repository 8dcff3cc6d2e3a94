"""The wheel of the checkout, built once in each process of xdist that asks for it."""

import pytest

from tests.packaging.kit import Wheel


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Wheel:
    return Wheel(tmp_path_factory.mktemp("wheel"))
