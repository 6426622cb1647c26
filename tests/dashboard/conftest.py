"""Most pages of the dashboard are asked about one team."""

from __future__ import annotations

import pytest

from tests.pages import Ids


@pytest.fixture
def team(played_team: Ids) -> Ids:
    """A small team at work."""
    return played_team
