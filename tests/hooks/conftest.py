"""What the tests of the hooks share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.hooks.harness import Harness


@pytest.fixture
def harness(tmp_path: Path, project: str) -> Iterator[Harness]:
    """A harness over a home that does not exist yet."""
    one = Harness(tmp_path / "home", Path(project))
    yield one
    one.close()
