"""What the operations of files share."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, Field

from coordination.parameters import ProjectRoot, SessionId, SessionSecret
from core.operations.parameters import Id, Params, not_blank
from files.config import LEAST_SECONDS, MOST_SECONDS

MOST_PATHS, MOST_IDS = 200, 1_000
GIVEN_PATH = 4096  # characters, as an absolute path has them

Path = Annotated[str, Field(max_length=GIVEN_PATH), AfterValidator(not_blank)]
Paths = Annotated[list[Path], Field(min_length=1, max_length=MOST_PATHS)]
Seconds = Annotated[int, Field(ge=LEAST_SECONDS, le=MOST_SECONDS)]


class OfAgent(Params):
    project_root: ProjectRoot
    agent_id: Annotated[Id, Field(description="You.")]


class Trusted(Params):
    session_id: SessionId = None
    session_secret: SessionSecret = None
