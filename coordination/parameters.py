"""Parameters that many operations of the bus share."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, Field

from coordination.errors import CoordinationCode
from coordination.paths import resolve_root
from nexus.core.operations.connections import OfConnection
from nexus.core.operations.errors import Code
from nexus.core.operations.parameters import FieldErrors, Id, Outside, not_blank

MOUNTED = Outside(touch=resolve_root, silent=CoordinationCode.WORKSPACE_UNRESOLVED, resolves=True)
ProjectRoot = Annotated[
    str,
    FieldErrors(absent=CoordinationCode.WORKSPACE_REQUIRED, rank=0),
    OfConnection(),
    MOUNTED,
    Field(max_length=4096, description="The project's absolute path."),
    AfterValidator(not_blank),
]
WorkspaceId = Annotated[
    Id,
    FieldErrors(absent=CoordinationCode.WORKSPACE_REQUIRED, rank=0),
    Field(description="From workspace_resolve."),
]
IN_WORKSPACE = (  # errors of operations with a project_root
    CoordinationCode.WORKSPACE_REQUIRED,
    CoordinationCode.WORKSPACE_UNRESOLVED,
    Code.VALIDATION_ERROR,
)
ClientId = Annotated[
    Annotated[str, Field(min_length=1, max_length=200), AfterValidator(not_blank)] | None,
    Field(description="Yours, for safe retries: the same one answers the first result."),
]
SessionId = Id | None  # the instructions explain where session and secret come from, and which calls take them
SessionSecret = Id | None
