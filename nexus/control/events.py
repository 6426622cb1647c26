"""Events of the pool in the event log. Operators see them; agents of the bus do not."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from coordination.log.emit import emit
from coordination.models import VisibilityChoices
from coordination.routing import Strategy
from coordination.services.audit import NOBODY
from nexus.control.models import STREAM, PoolAgent, Question, Turn

BY = "pool"  # the issuer of its agents' keys in the audit
QUOTED = 500  # characters of a question's subject and of its answer


def emit_event(type: str, actor: str | None, agent: PoolAgent, moment: datetime, **payload: Any) -> None:
    """Append an event about an agent of the pool, inside the transaction of the change."""
    emit(
        workspace_id=None,
        stream=STREAM,
        type=type,
        actor=actor,
        payload={"agent_id": agent.agent_id, "pool_agent_id": agent.pk, **payload},
        moment=moment,
        visibility=VisibilityChoices.PRIVATE,
        target=NOBODY,
    )


def emit_turn_event(type: str, actor: str | None, turn: Turn, moment: datetime, **payload: Any) -> None:
    """Append an event about a turn."""
    emit_event(type, actor, turn.agent, moment, turn_id=turn.pk, request_id=turn.request_id, **payload)


def emit_question_event(type: str, actor: str | None, question: Question, moment: datetime, **payload: Any) -> None:
    """Append an event about a question to the operators; the agent that asked sees it, too."""
    about = {"question_id": question.pk, "agent_id": question.agent_id, "kind": question.kind, "title": question.title}
    emit(
        workspace_id=None,
        stream=STREAM,
        type=type,
        actor=actor,
        payload={**about, "subject": question.subject[:QUOTED], "turn_id": question.turn_id, **payload},
        moment=moment,
        visibility=VisibilityChoices.PRIVATE,
        target={"strategy": Strategy.DIRECT.value, "agent_id": question.agent_id},
    )
