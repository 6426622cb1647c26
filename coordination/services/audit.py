"""The operators' trail: what they do lands in the event log with who did it."""

from __future__ import annotations

import os
from datetime import datetime
from typing import Any

from coordination.log.emit import emit
from coordination.models import Event, Stream
from coordination.paths import workspace_id_of
from coordination.routing import Strategy, Target, Visibility
from coordination.services import workspaces
from core.config import CoreSettings

NOBODY: Target = {"strategy": Strategy.MIXED.value, "rules": []}  # a union of nothing: operators see it, no agent does


def record(operator: str, type: str, moment: datetime, **payload: Any) -> Event:
    """Append what an operator did, inside the transaction of the deed. Keep secrets out of `payload`.

    An event has a workspace, and these belong to no project: theirs is the server's home directory.
    """
    place = workspaces.Place(home_id(), os.path.realpath(CoreSettings.current().home))
    workspaces.ensure(place, moment)
    return emit(
        workspace_id=place.workspace_id,
        stream=Stream.AGENT,
        type=type,
        actor=None,
        payload={**payload, "operator": operator},
        moment=moment,
        visibility=Visibility.PRIVATE,
        target=NOBODY,
    )


def home_id() -> str:
    """The id of the workspace that stands for the hub itself."""
    return workspace_id_of(os.path.realpath(CoreSettings.current().home))
