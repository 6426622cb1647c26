"""Guards: what the operations of the bus require of their callers."""

from __future__ import annotations

from typing import Any

from coordination.config import CoordinationSettings
from coordination.services import sessions
from nexus.core.operations.caller import Caller
from nexus.core.operations.registry import Guard, Operation


def in_session(parameter: str) -> Guard:
    """Return a guard that checks the session named by `parameter` and its secret: always in strict trust, otherwise
    when they are given."""

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

    return Guard(f"in strict trust with `{parameter}` and `session_secret`", check)
