"""What several agents make at the same time is made once."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from coordination.models import Agent, Channel, Workspace
from coordination.toolset import run
from tests.conftest import LOCAL, at_once

pytestmark = pytest.mark.usefixtures("committed")


CALLS: list[tuple[str, dict[str, Any], type[Any], str]] = [  # and the part of the answer that is the same for all
    ("channel_create", {"name": "news"}, Channel, "channel"),
    ("channel_list", {}, Channel, "channels"),
    ("agent_register", {"agent_id": "ana", "role": "planner"}, Agent, "role"),
    ("workspace_resolve", {}, Workspace, "workspace_id"),
]


@pytest.mark.parametrize(("name", "arguments", "model", "same"), CALLS, ids=[call[0] for call in CALLS])
def test_it_is_made_once_of_eight_that_make_it_at_once(
    project: str, name: str, arguments: dict[str, Any], model: type[Any], same: str
) -> None:
    where = {} if model is Agent else {"project_root": project}
    for _ in range(3):
        envelopes = at_once([partial(run, LOCAL, name, {**where, **arguments})] * 8)

        assert all(envelope["ok"] for envelope in envelopes), envelopes
        made = [envelope["data"] for envelope in envelopes]
        assert [each[same] for each in made] == [made[0][same]] * 8
        assert name != "channel_create" or [each["created"] for each in made].count(True) == 1
        assert model.objects.count() == 1
        model.objects.all().delete()
