"""What the tests of this app share: a workspace, registered agents, and settings changed for one test."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest
from pytest_django.fixtures import Settings

from tests.conftest import Call


@pytest.fixture
def workspace(call: Call, project: str) -> str:
    """The id of the project's workspace."""
    workspace_id: str = call("workspace_resolve", project_root=project)["workspace_id"]
    return workspace_id


@pytest.fixture
def ann(call: Call) -> str:
    """A registered agent."""
    call("agent_register", agent_id="ann", role="reviewer", capabilities=["py"])
    return "ann"


@pytest.fixture
def knobs(settings: Settings) -> Callable[..., None]:
    """Change settings of Nexus for this test."""

    def change(**values: Any) -> None:
        settings.NEXUS = dataclasses.replace(settings.NEXUS, **values)

    return change
