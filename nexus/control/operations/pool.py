"""Operations on the pool as a whole: create, list and end agents."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Annotated, NotRequired, cast

from pydantic import Field
from typing_extensions import TypedDict

from nexus.control import selectors
from nexus.control.agents import machines, pool, wake_kinds
from nexus.control.agents.rows import PoolAgentRow
from nexus.control.agents.transcript import estimate
from nexus.control.errors import ControlCode
from nexus.control.models import HUB, PoolAgent, Turn
from nexus.control.operations.agents import MOST_SECONDS, Answer, answer_of_turn, end_of
from nexus.control.permissions import protected_paths, rules
from nexus.control.permissions.members import Actor, actor_of
from nexus.control.permissions.rules import DEFAULT
from nexus.control.runners import contexts, instructions, sandbox
from nexus.control.runners_file import FILE, Rehearsal, Runner, runners
from nexus.control.toolset import IN_POOL, AgentId, operation
from nexus.control.worktrees import worktrees
from nexus.core.database.store import write
from nexus.core.domain import domain
from nexus.core.operations.caller import Caller
from nexus.core.operations.errors import Code
from nexus.core.operations.parameters import MAX_INTEGER, Id, Nothing, Outside, Params
from nexus.core.operations.registry import OPERATORS_ONLY, Wait
from nexus.core.operations.replies import Data
from nexus.core.waiting import Interest

GIVEN_PATH, MOST_PATHS, MOST_TOOLS = 4096, 100, 100
GivenPath = Annotated[str, Field(min_length=1, max_length=GIVEN_PATH)]
MOUNTED = Outside(touch=lambda path: Path(path).is_dir(), silent=Code.VALIDATION_ERROR)
ALL_MOUNTED = Outside(touch=lambda paths: [Path(path).is_dir() for path in paths], silent=Code.VALIDATION_ERROR)


class CreateAgent(Params):
    agent_id: Annotated[str | None, Field(max_length=255, description="With a leading dot: ends with the server.")] = (
        None
    )
    preset: Annotated[
        str | None, Field(max_length=255, description=f"worker, sandboxed or trusted; {DEFAULT} by default.")
    ] = None
    cwd: Annotated[GivenPath | None, Field(description="Its directory; else its parent's."), MOUNTED] = None
    allowed_write_paths: Annotated[list[GivenPath] | None, Field(max_length=MOST_PATHS), ALL_MOUNTED] = None
    model: Annotated[Id | None, Field(description="A runner of runners.toml.")] = None
    disable_tools: Annotated[list[Id] | None, Field(max_length=MOST_TOOLS)] = None
    parent_agent_id: Annotated[Id | None, Field(description="Its ceiling holds; you, if you are in the pool.")] = None
    wake_on: Annotated[
        list[Id] | None, Field(max_length=MOST_TOOLS, description="What starts a turn: mail, handoff, task, topic.")
    ] = None
    worktree: Annotated[
        bool | None,
        Field(
            description="A clone of the last commit, on a branch of its own, as its directory. By default if it may "
            "write, no write paths are given, and there is a commit; false: it works in `cwd` itself."
        ),
    ] = None
    wake_tokens: Annotated[int | None, Field(ge=0, le=MAX_INTEGER, description="Limit a day of its woken turns.")] = (
        None
    )
    initial_message: Annotated[str | None, Field(min_length=1, description="Begins its first turn.")] = None
    wait_for_initial_response: bool = False
    timeout_seconds: Annotated[
        float, Field(ge=0, le=MOST_SECONDS, description="Timeout of that; then the turn goes on.")
    ] = MOST_SECONDS

    @property
    def seconds_to_wait(self) -> float:
        """The seconds that the call waits for the first answer."""
        return self.timeout_seconds if self.wait_for_initial_response and self.initial_message is not None else 0


class Created(TypedDict):
    agent_id: str
    url: str
    worktree: NotRequired[Annotated[str, Field(description="Its directory, in a clone of its own.")]]
    warning: NotRequired[Annotated[str, Field(description="Why it has no clone, what that lacks, the paths' risk.")]]
    initial_request_id: NotRequired[str]
    initial_status: NotRequired[str]
    response: NotRequired[Answer]


class Resumed(CreateAgent):
    """State of a waiting call: what it returned first."""

    created: Created


def _resumed(p: CreateAgent, data: Data) -> CreateAgent:
    return Resumed.model_construct(**{**p.__dict__, "created": data})


def _look(p: CreateAgent, caller: Caller) -> Created:
    """Return the created agent, and its answer once there is one."""
    assert isinstance(p, Resumed)
    response = answer_of_turn(p.created["agent_id"], p.created["initial_request_id"])
    if response is None:
        return p.created
    first = {name: value for name, value in p.created.items() if not name.startswith("initial_")}
    return cast(Created, {**first, "response": response})


def _created(agent: PoolAgent, turn: Turn | None, in_worktree: bool, lacks: str) -> Created:
    created: Created = {"agent_id": agent.agent_id, "url": f"/agent/{agent.agent_id}"}
    if in_worktree:
        created["worktree"] = agent.cwd
    may, cwd = agent.permissions, Path(agent.cwd)
    has_git = rules.opens_git(may.write_paths) or any(os.path.lexists(path / ".git") for path in (cwd, *cwd.parents))
    risks = [f"{risk}." for risk in rules.risks(may, protected_paths.home())] if has_git else []
    if warning := " ".join(filter(None, (lacks, *risks))):
        created["warning"] = warning
    if turn is not None:
        created["initial_request_id"], created["initial_status"] = turn.request_id, "queued"
    return created


def _ends(p: CreateAgent) -> Interest:
    assert isinstance(p, Resumed)
    return end_of(p.created["agent_id"], p.created["initial_request_id"])


@operation(
    CreateAgent,
    Code.VALIDATION_ERROR,
    Code.NOT_FOUND,
    Code.CONTENT_TOO_LARGE,
    ControlCode.POOL_OFF,
    ControlCode.NOT_PERMITTED,
    ControlCode.POOL_FULL,
    ControlCode.NO_MACHINE,
    ControlCode.WORKTREE_REFUSED,
    requires=(IN_POOL,),
    slow=lambda p: p.allowed_write_paths is None if p.worktree is None else p.worktree,
    takes_minutes=True,
    own_transaction=True,  # git is called outside of it
    wait=Wait[CreateAgent](
        timeout=lambda p: p.seconds_to_wait,
        resume=_resumed,
        interested=_ends,
        look=_look,
        done=lambda data: "response" in data,
        expired=lambda p, data: data,
        capped=False,
    ),
)
def pool_create_agent(p: CreateAgent, caller: Caller) -> Created:
    """Create an agent in the pool, with a permission preset, below its parent's ceiling."""
    actor = actor_of(caller)
    runner = runners().named(p.model)
    machine = machines.choose(runner, pool.parent_of(actor, p.parent_agent_id))
    if machine == HUB:
        sandbox.check(runner)
    if p.worktree and machine != HUB:
        raise worktrees.refusal(
            f"agents of the runner {runner.name} live on the machine {machine}, and worktrees are made at the hub "
            f"alone. Name a directory below a [clones] entry of its {FILE} as cwd, or take a runner without labels"
        )
    wake_kinds.check_kinds(p.wake_on or [])
    order = pool.Order(
        agent_id=p.agent_id,
        preset=p.preset,
        cwd=p.cwd,
        write_paths=p.allowed_write_paths,
        disabled_tools=p.disable_tools or (),
        runner=runner.name,
        parent_agent_id=p.parent_agent_id,
        wake_on=p.wake_on or (),
        wake_tokens=p.wake_tokens,
        worktree=p.worktree if machine == HUB else False,
        machine=machine,
        asked_in=caller.cwd,
    )

    def made(order: pool.Order, tree: pool.NewWorktree | None, why_none: str) -> Created:
        order = replace(order, instruction_tokens=_instruction_tokens(actor, order, runner))
        with write(), domain().acting(caller.operator, "pool_create_agent") as about:
            agent, turn = pool.create(actor, order, message=p.initial_message, waits=p.seconds_to_wait, tree=tree)
            contexts.check_room(agent)
            about["agent_id"] = agent.agent_id
        return _created(agent, turn, tree is not None, tree.row["lacks"] if tree else why_none)

    return worktrees.create(actor, order, made)


def _instruction_tokens(actor: Actor, order: pool.Order, runner: Runner) -> int:
    """Return the tokens of the files with instructions for a new agent; nothing is read where a ceiling forbids its
    directory."""
    if isinstance(runner, Rehearsal) or not order.is_here:  # the first turn there reads them
        return 0
    cwd = None if order.cwd is None else pool.real_directory(order.cwd, "cwd")
    may = pool.granted(order, cwd, pool.parent_of(actor, order.parent_agent_id), actor)
    return estimate(instructions.read_instructions(may.cwd))


class DestroyAgent(Params):
    agent_id: AgentId


class Destroyed(TypedDict):
    success: bool
    agent_id: str


@operation(
    DestroyAgent,
    Code.VALIDATION_ERROR,
    ControlCode.POOL_OFF,
    ControlCode.NOT_PERMITTED,
    requires=(IN_POOL,),
    destructive=True,
    idempotent=True,
)
def pool_destroy_agent(p: DestroyAgent, caller: Caller) -> Destroyed:
    """End an agent of the pool and cancel its turns; success is false if there is none of this name."""
    return {"success": pool.destroy(actor_of(caller), p.agent_id), "agent_id": p.agent_id}


class PoolAgentList(TypedDict):
    agents: list[PoolAgentRow]


@operation(Nothing, ControlCode.POOL_OFF, ControlCode.NOT_PERMITTED, requires=(IN_POOL,), read_only=True)
def pool_list_agents(p: Nothing, caller: Caller) -> PoolAgentList:
    """List every agent of the pool: its permissions, its parent, its turns."""
    actor_of(caller)
    return {"agents": selectors.agents()}


class StopResult(TypedDict):
    success: bool
    message: str


@operation(Nothing, ControlCode.POOL_OFF, requires=(OPERATORS_ONLY, IN_POOL), tool=False, destructive=True)
def pool_shutdown_server(p: Nothing, caller: Caller) -> StopResult:
    """End the server: running turns get `pool_stop_seconds`, temporary agents end."""
    pool.check_server_runs()
    pool.ask_to_end(actor_of(caller).name)
    return {
        "success": True,
        "message": "The server ends once the turns that are taken have ended, or their time is over.",
    }
