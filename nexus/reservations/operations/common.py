"""Parameters and helpers that the operations of reservations share."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, Field

from coordination.errors import CoordinationCode
from coordination.parameters import ProjectRoot, SessionId, SessionSecret
from coordination.services import workspaces
from nexus.core.operations.parameters import Id, Outside, Params, not_blank
from nexus.reservations.config import LEAST_SECONDS, MOST_SECONDS
from nexus.reservations.paths import shared_by

MOST_PATHS, MOST_IDS = 200, 1_000
GIVEN_PATH = 4096  # characters; an absolute path may be this long

# A work tree of the same repository may also be on a mount.
SharedRoot = Annotated[
    ProjectRoot,
    Outside(lambda root: shared_by(workspaces.locate(root)), silent=CoordinationCode.WORKSPACE_UNRESOLVED),
]
Path = Annotated[str, Field(max_length=GIVEN_PATH), AfterValidator(not_blank)]
Paths = Annotated[list[Path], Field(min_length=1, max_length=MOST_PATHS)]
Seconds = Annotated[int, Field(ge=LEAST_SECONDS, le=MOST_SECONDS)]


class OfAgent(Params):
    project_root: ProjectRoot
    agent_id: Annotated[Id, Field(description="You.")]


class Trusted(Params):
    session_id: SessionId = None
    session_secret: SessionSecret = None
