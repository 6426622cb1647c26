"""What the tests over real processes share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.acceptance.hub import Hub, serving


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hub]:
    """One running hub for the tests of a module."""
    yield from serving(tmp_path_factory.mktemp("home"))
