"""A team at work, and a browser on this machine."""

from __future__ import annotations

from pathlib import Path

import pytest
from django.test import Client

from coordination.toolset import run
from tests.browser import scene
from tests.dashboard.test_dashboard import LOCAL, OPERATOR, Ids, do
from tests.topics.conftest import Client as Peer
from topics import connections


@pytest.fixture
def team(db: None, tmp_path: Path) -> Ids:
    """A small team at work."""
    root = tmp_path / "parser"
    root.mkdir()
    added = run(OPERATOR, "webhook_add", {"url": "https://example.com/nexus", "types": ["operator.created"]})["data"]
    topic = scene.talk(Peer().call)
    connections._held.clear()
    return {**scene.play(do, root), **topic, "root": str(root), "webhook": added["webhook_id"]}


@pytest.fixture
def browser() -> Client:
    """A browser on this machine."""
    return Client(headers=LOCAL)
