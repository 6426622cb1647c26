"""What the tests of this app share: a workspace and a registered agent."""

from __future__ import annotations

import pytest

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
