"""A connected repository on a GitHub of our own, and one round of the worker."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from coordination.toolset import run
from nexus.core.background_work import work_once
from nexus.forges.models import Forge
from nexus.forges.polling import ROUNDS
from tests.conftest import OPERATOR
from tests.forges.github_server import GitHub, serve


@pytest.fixture(autouse=True)
def alone(git_alone: None) -> None:
    """How git is confined, three tests ask."""


@pytest.fixture
def github(starts_processes: None) -> Iterator[GitHub]:
    with serve() as served:
        yield served


@pytest.fixture
def forge(github: GitHub, project: str, db: None) -> Forge:
    given = {"kind": "github", "repository": "acme/shop", "project_root": project, "label": "nexus"}
    answer = run(OPERATOR, "forge_connect", {**given, "url": github.url, "token": github.token})
    assert answer["ok"], answer
    return Forge.objects.get()


@pytest.fixture
def look(forge: Forge) -> Callable[[], list[Any]]:
    """Do all that is due, as if the time to poll had come."""

    def looked() -> list[Any]:
        Forge.objects.update(poll_at=forge.created_at, next_attempt_at=None)
        return work_once(ROUNDS)

    return looked
