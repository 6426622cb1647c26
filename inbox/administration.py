"""Operators' operations on dead letters."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field
from typing_extensions import TypedDict

from coordination.toolset import operation
from inbox import dead_letters
from inbox.models import Delivery
from inbox.rows import DeliveryState
from nexus.core.clock import iso
from nexus.core.operations.caller import Caller, operator_behind
from nexus.core.operations.errors import Code
from nexus.core.operations.parameters import Id, Limit, Params, Time
from nexus.core.operations.registry import OPERATORS_ONLY

DEFAULT_LIMIT, MAX_LIMIT = 50, 500
OF_ONE = (Code.VALIDATION_ERROR, Code.NOT_FOUND, Code.INVALID_TRANSITION)


class DeadLetterList(Params):
    agent_id: Annotated[Id | None, Field(description="Only dead letters of this agent's inbox.")] = None
    limit: Annotated[Limit, Field(description=f"{MAX_LIMIT} at most.")] = DEFAULT_LIMIT


class LetterRow(TypedDict):
    delivery_id: str
    message_id: str
    recipient: str
    from_agent_id: str
    subject: str
    status: DeliveryState
    attempts: int
    workspace_id: str
    project_root: str
    created_at: Time


class DeadLetterPage(TypedDict):
    dead_letters: list[LetterRow]


@operation(DeadLetterList, Code.VALIDATION_ERROR, requires=(OPERATORS_ONLY,), tool=False, read_only=True)
def dead_letter_list(p: DeadLetterList, caller: Caller) -> DeadLetterPage:
    """List mail that was handed out too often and never acknowledged, newest first."""
    found = dead_letters.list_dead_letters(agent_id=p.agent_id, limit=min(p.limit, MAX_LIMIT))
    return {"dead_letters": [_row(letter) for letter in found]}


class DeadLetter(Params):
    delivery_id: Id


@operation(DeadLetter, *OF_ONE, requires=(OPERATORS_ONLY,), tool=False)
def dead_letter_requeue(p: DeadLetter, caller: Caller) -> LetterRow:
    """Put a dead letter back into its inbox, unread, and count its hand-outs from 0 again."""
    return _row(dead_letters.requeue(delivery_id=p.delivery_id, operator=operator_behind(caller)))


@operation(DeadLetter, *OF_ONE, requires=(OPERATORS_ONLY,), tool=False)
def dead_letter_acknowledge(p: DeadLetter, caller: Caller) -> LetterRow:
    """Acknowledge a dead letter, so that it is done."""
    return _row(dead_letters.acknowledge(delivery_id=p.delivery_id, operator=operator_behind(caller)))


class DeadLetterForward(DeadLetter):
    agent_id: Annotated[Id, Field(description="The agent that gets the message instead.")]


@operation(DeadLetterForward, *OF_ONE, requires=(OPERATORS_ONLY,), tool=False)
def dead_letter_forward(p: DeadLetterForward, caller: Caller) -> LetterRow:
    """Put the message of a dead letter into another agent's inbox, and settle the letter. The new delivery."""
    return _row(dead_letters.forward(delivery_id=p.delivery_id, agent_id=p.agent_id, operator=operator_behind(caller)))


@operation(DeadLetter, *OF_ONE, requires=(OPERATORS_ONLY,), tool=False)
def dead_letter_park(p: DeadLetter, caller: Caller) -> LetterRow:
    """Undo a requeue that nobody pulled since, or an acknowledgement within a minute: it is a dead letter again."""
    return _row(dead_letters.park(delivery_id=p.delivery_id, operator=operator_behind(caller)))


def _row(letter: Delivery) -> LetterRow:
    message = letter.message
    return {
        "delivery_id": letter.delivery_id,
        "message_id": message.message_id,
        "recipient": letter.recipient_id,
        "from_agent_id": message.from_agent_id,
        "subject": message.subject,
        "status": letter.status,
        "attempts": letter.attempts,
        "workspace_id": message.workspace_id,
        "project_root": message.workspace.root_realpath,
        "created_at": iso(letter.created_at),
    }
