"""Parameters that many operations of the bus share."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import AfterValidator, Field

from coordination.config import CoordinationSettings
from coordination.errors import CoordinationCode
from coordination.paths import resolve_root
from coordination.services import sessions
from nexus.core.operations.caller import Caller
from nexus.core.operations.errors import Code
from nexus.core.operations.parameters import MAX_INTEGER, FieldErrors, Id, OfConnection, Outside, Terse, not_blank
from nexus.core.operations.registry import Operation, Requirement

MOUNTED = Outside(touch=resolve_root, silent=CoordinationCode.WORKSPACE_UNRESOLVED, resolves=True)
ProjectRoot = Annotated[
    str,
    FieldErrors(absent=CoordinationCode.WORKSPACE_REQUIRED, rank=0),
    OfConnection(),
    MOUNTED,
    Field(max_length=4096, description="Absolute path."),
    Terse(),
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
    Field(description="Makes retries safe: the same id returns the first result."),
]
ClaimEpoch = Annotated[int | None, Field(ge=0, le=MAX_INTEGER)]  # by which a late call of a former claim is refused
SessionId = Id | None  # the instructions explain where session and secret come from, and which calls take them
SessionSecret = Id | None


def in_session(parameter: str) -> Requirement:
    """Return a requirement that checks the session named by `parameter` and its secret: always in strict trust,
    otherwise when they are given."""

    def check(operation: Operation[Any], params: Any, caller: Caller) -> None:
        assert operation.acts_as is not None, "a sensitive operation names its acting agent"
        sessions.check_credentials(
            agent_id=getattr(params, operation.acts_as),
            session_id=getattr(params, parameter),
            secret=getattr(params, "session_secret", None),
            required=CoordinationSettings.current().trust_mode == "strict"
            and caller.operator is None
            and not caller.vouched,
        )

    return Requirement(f"in strict trust with `{parameter}` and `session_secret`", check)
