"""Operations on one agent of the pool: send it work, query it, cancel its turns."""

from __future__ import annotations

from typing import Annotated, Any, Literal, NotRequired

from pydantic import Field
from typing_extensions import TypedDict

from coordination.log.selectors import interest_in
from nexus.control import selectors
from nexus.control.agents import pool, transcript, turns, waking
from nexus.control.agents.rows import ContextRow, PoolMessageRow, TokensRow, message_row
from nexus.control.errors import ControlCode
from nexus.control.models import STREAM, PoolAgent, Turn, TurnStatus
from nexus.control.permissions.members import actor_of, check_authority, get
from nexus.control.runners import contexts
from nexus.control.toolset import IN_POOL, AgentId, RequestId, operation
from nexus.core.operations.caller import Caller
from nexus.core.operations.errors import Code, NexusError
from nexus.core.operations.parameters import MAX_INTEGER, Label, Params
from nexus.core.operations.registry import OPERATORS_ONLY, Wait
from nexus.core.operations.replies import Data
from nexus.core.waiting import Interest

SECONDS, MOST_SECONDS = 300, 86_400  # that a call waits for its answer
PAGE, MOST_MESSAGES = 200, 2_000

COMMON = (Code.VALIDATION_ERROR, Code.NOT_FOUND, ControlCode.POOL_OFF, ControlCode.NOT_PERMITTED)


class Answer(TypedDict):
    request_id: str
    content: NotRequired[str]
    halted_at_iteration_limit: NotRequired[bool]
    cancelled: NotRequired[bool]
    status: NotRequired[Annotated[str, Field(description="queued or running: the timeout came first.")]]


class OfAgent(Params):
    agent_id: AgentId


class Send(OfAgent):
    content: Annotated[str, Field(min_length=1)]
    request_id: RequestId | None = None
    source: Annotated[Label, Field(min_length=1, description="How it was sent.")] = "rpc"
    source_agent_id: Annotated[
        Label | None, Field(min_length=1, description="The sender; you, if you are in the pool.")
    ] = None
    timeout_seconds: Annotated[float, Field(ge=0, le=MOST_SECONDS, description="0: queue it, and do not wait.")] = (
        SECONDS
    )
    on_disconnect: Annotated[Literal["leave", "cancel"], Field(description="What happens to it if you disconnect.")] = (
        "leave"
    )


def answer_of_turn(agent_id: str, request_id: str) -> Answer | None:
    """Return a turn's answer; None while it is open. Raises TURN_FAILED and TURN_INTERRUPTED."""
    turn = selectors.turn(agent_id, request_id)
    return None if turn is None or turn.ended_at is None else _answer(turn)


def _answer(turn: Turn) -> Answer:
    details = {"agent_id": turn.agent.agent_id, "request_id": turn.request_id, "why": turn.why}
    match turn.status:
        case TurnStatus.DONE:
            return {
                "content": turn.answer or "",
                "request_id": turn.request_id,
                "halted_at_iteration_limit": turn.halted,
            }
        case TurnStatus.CANCELLED:
            return {"cancelled": True, "request_id": turn.request_id}
        case TurnStatus.INTERRUPTED:
            raise NexusError(
                ControlCode.TURN_INTERRUPTED, f"The turn was interrupted: {turn.why}. Send the message again.", details
            )
        case _:
            raise NexusError(ControlCode.TURN_FAILED, f"The turn failed: {turn.why}.", details)


def end_of(agent_id: str, request_id: str) -> Interest:
    """Return the interest in the event that ends this turn."""

    def admits(event: Any) -> bool:
        return event.type in turns.ENDS and event.payload.get("agent_id") == agent_id

    return interest_in(STREAM, "request_id", request_id, admits)


def _state(turn: Turn) -> Answer:
    return _answer(turn) if turn.ended_at is not None else {"request_id": turn.request_id, "status": turn.status}


def _look(p: Send, caller: Caller) -> Answer:
    turn = selectors.turn(p.agent_id, p.request_id or "")
    if turn is None:
        raise NexusError(ControlCode.TURN_FAILED, "The agent, and its turns, are gone.", {"agent_id": p.agent_id})
    return _state(turn)


def _abandoned(p: Send, caller: Caller, data: Data) -> None:
    if p.on_disconnect == "cancel":
        turns.cancel(actor_of(caller), p.agent_id, data["request_id"])
    else:
        turns.nobody_waits(p.agent_id, data["request_id"])


@operation(
    Send,
    *COMMON,
    Code.CONTENT_TOO_LARGE,
    ControlCode.POOL_FULL,
    ControlCode.TURN_FAILED,
    ControlCode.TURN_INTERRUPTED,
    requires=(IN_POOL,),
    wait=Wait[Send](
        timeout=lambda p: p.timeout_seconds,
        resume=lambda p, data: p.model_copy(update={"request_id": data["request_id"]}),
        interested=lambda p: end_of(p.agent_id, p.request_id or ""),
        look=_look,
        done=lambda data: "status" not in data,
        expired=lambda p, data: data,
        abandoned=_abandoned,
        capped=False,
    ),
)
def pool_send(p: Send, caller: Caller) -> Answer:
    """Send a message to an agent and wait for its answer. If the time is over first, the turn goes on: send the same
    request_id and content again to keep waiting."""
    turn = turns.send(
        actor_of(caller),
        p.agent_id,
        content=p.content,
        request_id=p.request_id,
        source=p.source,
        source_agent_id=p.source_agent_id,
        waits=p.timeout_seconds,
    )
    return _state(turn)


class Cancel(OfAgent):
    request_id: RequestId


class Cancelled(TypedDict):
    cancelled: bool
    request_id: str
    reason: NotRequired[str]


@operation(Cancel, *COMMON, requires=(IN_POOL,), idempotent=True)
def pool_cancel(p: Cancel, caller: Caller) -> Cancelled:
    """Stop a queued or running turn; callers that wait for its answer get `cancelled`."""
    turn = turns.cancel(actor_of(caller), p.agent_id, p.request_id)
    if turn is None:
        return {"cancelled": False, "request_id": p.request_id, "reason": "not_found_or_completed"}
    return {"cancelled": True, "request_id": p.request_id}


def _visible(caller: Caller, agent_id: str) -> PoolAgent:
    actor, agent = actor_of(caller), get(agent_id)  # in this order: who is no member learns no names
    check_authority(actor, agent, "look into")
    return agent


@operation(OfAgent, *COMMON, requires=(IN_POOL,), read_only=True)
def pool_get_tokens(p: OfAgent, caller: Caller) -> TokensRow:
    """Return the tokens of an agent's context, by part, and how many are left."""
    return contexts.tokens(_visible(caller, p.agent_id))


@operation(OfAgent, *COMMON, requires=(IN_POOL,), read_only=True)
def pool_get_context(p: OfAgent, caller: Caller) -> ContextRow:
    """Return the length of an agent's context, and how its last turn ended."""
    return contexts.context(_visible(caller, p.agent_id))


class GetMessages(OfAgent):
    offset: Annotated[int, Field(ge=0, le=MAX_INTEGER)] = 0
    limit: Annotated[int, Field(ge=1, le=MOST_MESSAGES)] = PAGE


class PoolMessages(TypedDict):
    agent_id: str
    total: int
    offset: int
    limit: int
    messages: list[PoolMessageRow]


@operation(GetMessages, *COMMON, requires=(IN_POOL,), read_only=True)
def pool_get_messages(p: GetMessages, caller: Caller) -> PoolMessages:
    """Return the messages in an agent's context, with their tool calls; fewer than limit if they are long."""
    total, entries = contexts.messages(_visible(caller, p.agent_id), p.offset, p.limit)
    rows = [message_row(entry, p.offset + number) for number, entry in enumerate(entries)]
    return {"agent_id": p.agent_id, "total": total, "offset": p.offset, "limit": p.limit, "messages": rows}


class Compact(OfAgent):
    force: Annotated[bool, Field(description="false: only when the context is nearly full.")] = True


class ContextCompacted(TypedDict):
    compacted: bool
    tokens_before: NotRequired[int]
    tokens_after: NotRequired[int]
    tokens_saved: NotRequired[int]
    reason: NotRequired[str]


@operation(Compact, *COMMON, requires=(IN_POOL,))
def pool_compact(p: Compact, caller: Caller) -> ContextCompacted:
    """Replace what was said before the last turns with a summary."""
    agent = _visible(caller, p.agent_id)
    if not p.force and not contexts.is_nearly_full(agent):
        return {"compacted": False, "reason": "nothing_to_compact"}
    done = transcript.compact(agent, actor_of(caller).name, contexts.runner_of(agent).available_tokens)
    if done is None:
        return {"compacted": False, "reason": "nothing_to_compact"}
    before, after = done
    return {"compacted": True, "tokens_before": before, "tokens_after": after, "tokens_saved": before - after}


class SetOption(OfAgent):
    option: Annotated[Label, Field(min_length=1, description="mode, or the id of another option of its session.")]
    value: Annotated[str | bool | None, Field(description="null: leave it to the agent again.")] = None


class OptionSet(TypedDict):
    agent_id: str
    chosen: Annotated[dict[str, str | bool], Field(description="All that is chosen now.")]


@operation(
    SetOption,
    Code.VALIDATION_ERROR,
    Code.NOT_FOUND,
    ControlCode.POOL_OFF,
    requires=(OPERATORS_ONLY, IN_POOL),
    tool=False,
    idempotent=True,
)
def pool_set_option(p: SetOption, caller: Caller) -> OptionSet:
    """Choose the mode, the model or another option of an agent process's sessions, from its next turn on."""
    agent = pool.set_option(actor_of(caller), p.agent_id, p.option, p.value)
    return {"agent_id": p.agent_id, "chosen": agent.options}


class ShutDown(TypedDict):
    success: bool


@operation(OfAgent, *COMMON, requires=(IN_POOL,), idempotent=True)
def pool_shutdown(p: OfAgent, caller: Caller) -> ShutDown:
    """Mark an agent as done: it still answers. When operators have marked all agents, the server ends."""
    pool.shut_down(actor_of(caller), p.agent_id)
    return {"success": True}


class Resumed(TypedDict):
    agent_id: str
    resumed: bool


@operation(
    OfAgent,
    Code.VALIDATION_ERROR,
    Code.NOT_FOUND,
    ControlCode.POOL_OFF,
    requires=(OPERATORS_ONLY, IN_POOL),
    tool=False,
    idempotent=True,
)
def pool_resume(p: OfAgent, caller: Caller) -> Resumed:
    """Let an agent be woken again that reached a limit: chains of turns, and their tokens, count from now."""
    waking.resume(p.agent_id, actor_of(caller).name)
    return {"agent_id": p.agent_id, "resumed": True}
