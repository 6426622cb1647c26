"""Agents of the pool: creation within a ceiling, and the end of agents."""

from __future__ import annotations

import logging
import os
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from django.db import transaction

from coordination.ids import new_id
from coordination.models import Agent, Event
from coordination.services import agents, keys, roster
from nexus.control.agents import questions, turns, wake_kinds
from nexus.control.config import ControlSettings
from nexus.control.errors import ControlCode
from nexus.control.events import BY, emit_event, emit_of_pool
from nexus.control.models import HUB, STREAM, PoolAgent, PoolWorktree, Turn
from nexus.control.permissions import protected_paths, rules
from nexus.control.permissions.members import Actor, check_authority, check_not_disabled, family, find, get, refused
from nexus.control.permissions.rules import LONGEST_ID, Permissions, is_agent_id, is_temporary
from nexus.control.runners_file import runners
from nexus.core.clock import now
from nexus.core.database.store import store, write
from nexus.core.operations.errors import NexusError, invalid
from nexus.core.size_limits import within_limit

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Order:
    """The parameters of a new agent."""

    agent_id: str | None
    preset: str | None
    cwd: str | None
    write_paths: Sequence[str] | None
    disabled_tools: Sequence[str]
    runner: str
    parent_agent_id: str | None
    wake_on: Sequence[str] = ()
    wake_tokens: int | None = None
    worktree: bool | None = False  # None: if it may write and there is a commit to clone
    machine: str = HUB
    asked_in: str | None = None  # the caller's directory, if it is another process
    instruction_tokens: int = 0  # of files

    @property
    def is_here(self) -> bool:
        """Whether the agent's directory is on the hub's disk."""
        return self.machine == HUB


class NewWorktree(NamedTuple):
    """The worktree that a new agent works in."""

    row: Mapping[str, Any]  # its columns
    moved: Callable[[Permissions], Permissions]  # from where it was made to the same paths in it


def create(
    actor: Actor, order: Order, *, message: str | None = None, waits: float = 0, tree: NewWorktree | None = None
) -> tuple[PoolAgent, Turn | None]:
    """Create an agent, with the turn that its first message starts, whose answer the actor `waits` for so many seconds;
    in a worktree if `tree` is given.

    A refusal creates nothing. Raises VALIDATION_ERROR for an invalid or taken name and for a missing directory;
    CONTENT_TOO_LARGE; NOT_PERMITTED for what a ceiling forbids; POOL_FULL.
    """
    check_name(order.agent_id)
    if message is not None:
        within_limit(message, "initial_message", turns.LARGEST_MESSAGE)
    cwd = directory_of(order)
    needed = parent_of_clone(cwd) if cwd is not None and order.is_here else None
    moment = now()
    with write():
        parent = parent_of(actor, order.parent_agent_id)
        _check_room(actor)
        agent_id = _name(order.agent_id, actor)
        permissions = granted(order, cwd, parent, actor)
        if cwd is not None and order.is_here:  # the parent's need not be checked here: each turn does
            check_exists(needed or cwd, "cwd")  # after the ceiling, so that nobody learns what exists beyond their own
        if tree is not None:
            permissions = tree.moved(permissions)
        agents.register(agent_id=agent_id, given={"metadata": {"pool": True}}, by_operator=True)
        agent = PoolAgent.objects.create(
            pool_agent_id=new_id("pool"),
            agent_id=agent_id,
            parent=parent,
            depth=permissions.depth,
            preset=permissions.preset,
            cwd=permissions.cwd,
            write_paths=list(permissions.write_paths),
            disabled_tools=sorted(permissions.disabled_tools),
            runner=order.runner,
            machine=order.machine,
            wake_on=sorted(set(order.wake_on)),
            wake_tokens=_budget(order.wake_tokens, parent, actor),
            is_temporary=is_temporary(agent_id),
            instruction_tokens=order.instruction_tokens,
            created_by=actor.name,
            created_at=moment,
            last_action_at=moment,
        )
        emit_event(
            "pool.created",
            actor.name,
            agent,
            moment,
            preset=agent.preset,
            runner=agent.runner,
            parent=parent.agent_id if parent else None,
        )
        if tree is not None:
            PoolWorktree.objects.create(worktree_id=new_id("tree"), agent=agent, created_at=moment, **tree.row)
            emit_event("worktree.made", actor.name, agent, moment, branch=tree.row["branch"], path=tree.row["path"])
        turn = None
        if message is not None:
            turn = turns.queue(actor, agent, content=message, request_id=None, source="rpc", moment=moment, waits=waits)
    return agent, turn


def _check_room(actor: Actor) -> None:
    """Check that the pool has room for one more agent. Raises POOL_FULL."""
    living, most = PoolAgent.objects.living(), ControlSettings.current().pool_agents
    if living.count() >= most - (0 if actor.is_operator else rules.reserve(most)):
        raise NexusError(
            ControlCode.POOL_FULL,
            "The pool holds as many agents as `pool_agents` allows"
            + ("; end one first." if actor.is_operator else " agents to create; end one, or ask an operator."),
        )
    if actor.agent is not None and living.filter(family(actor.agent)).count() >= rules.share(most):
        raise NexusError(
            ControlCode.POOL_FULL,
            f"One agent and all below it are {rules.share(most)} at most, by `pool_agents`; end one, or ask an "
            "operator.",
        )


def check_name(agent_id: str | None) -> None:
    """Check an agent's name. Raises VALIDATION_ERROR."""
    if agent_id is not None and not is_agent_id(agent_id):
        raise invalid(
            f"agent_id takes letters, digits, `_`, `-` and `.`, at most {LONGEST_ID} of them, and one dot more in "
            "front for a temporary agent; no part of a path.",
            field="agent_id",
        )


def destroy(actor: Actor, agent_id: str) -> bool:
    """End an agent and its turns; return whether there was one. Raises NOT_PERMITTED for a caller that is neither the
    agent nor above it."""
    moment = now()
    with write():
        agent = find(agent_id)
        if agent is None:
            return False
        check_authority(actor, agent, "end")
        check_not_disabled(actor, "destroy_agent")
        end(agent, actor.name, moment, why="destroyed")
        if actor.is_operator:
            _end_where_all_may_go(actor.name)
    return True


def end(agent: PoolAgent, by: str | None, moment: datetime, *, why: str) -> None:
    """End an agent. Call it inside a transaction. Its identity on the bus stays, with its mail."""
    turns.cancel_all(agent, by, moment)
    questions.withdraw(agent.questions.all(), moment)
    keys.retire(agent_id=agent.agent_id, operator=BY)  # the next agent of this name is another one
    roster.leave(agent_id=agent.agent_id, moment=moment)
    agent.ended_at = moment
    agent.save(update_fields=["ended_at"])
    emit_event("pool.ended", by, agent, moment, why=why)
    if by is None:  # nobody asked for it, so the log says so
        transaction.on_commit(partial(log.warning, "The agent %r of the pool ended: %s.", agent.agent_id, why))


def shut_down(actor: Actor, agent_id: str) -> PoolAgent:
    """Mark an agent as done: it still answers. When operators have marked all agents, the server ends; an agent's own
    word does not count for that. Raises NOT_FOUND and NOT_PERMITTED."""
    moment = now()
    with write():
        agent = get(agent_id)
        check_authority(actor, agent, "shut down")
        if not agent.should_shutdown:
            agent.should_shutdown = True
            agent.save(update_fields=["should_shutdown"])
            emit_event("pool.shutdown_asked", actor.name, agent, moment)
        if actor.is_operator:
            PoolAgent.objects.filter(pk=agent.pk).update(may_end_server=True)
            _end_where_all_may_go(actor.name)
    return agent


def set_option(actor: Actor, agent_id: str, option: str, value: str | bool | None) -> PoolAgent:
    """Choose an option of an agent's sessions from its next turn on; None leaves it to the agent again.

    Raises NOT_FOUND, and VALIDATION_ERROR for what its session did not offer.
    """
    moment = now()
    with write():
        agent = get(agent_id)
        offered = {each["id"]: each for each in (agent.session or {}).get("options", [])}
        if value is None:
            agent.options.pop(option, None)
        elif option not in offered:
            known = ", ".join(offered) or "none yet: it tells of them in its first turn"
            raise invalid(f"This agent's session has no option {option!r}, only: {known}.", field="option")
        elif not rules.is_offered(offered[option], value):
            values = ", ".join(each["value"] for each in offered[option]["choices"]) or "true, false"
            raise invalid(f"{option} is one of: {values}.", field="value")
        else:
            agent.options[option] = value
        agent.save(update_fields=["options"])
        shown = {} if value is None else {"value": str(value)}
        emit_event("pool.option_set", actor.name, agent, moment, option=option, **shown)
    return agent


def _end_where_all_may_go(by: str) -> None:
    """Ask the server to end if there are agents and operators marked each as done."""
    marks = set(PoolAgent.objects.living().values_list("may_end_server", flat=True))
    if marks == {True}:
        ask_to_end(by)


def stay() -> None:
    """Remove all marks of `shut_down` when a server starts: they were about an earlier one."""
    with write():
        marked = PoolAgent.objects.living().filter(should_shutdown=True)
        marked.update(should_shutdown=False, may_end_server=False)


def end_temporary(before: datetime) -> None:
    """End the temporary agents that were created before a moment. A server calls it at its end, and at its start for a
    server that was killed."""
    moment = now()
    with write():
        for agent in PoolAgent.objects.living().filter(is_temporary=True, created_at__lt=before):
            end(agent, None, moment, why="the server ended")


def directory_of(order: Order) -> str | None:
    """Return the directory that an order names, as it is stored. Another machine's is checked there, at each turn: it
    has to be there, and must not lead through a symlink. Raises VALIDATION_ERROR."""
    if order.cwd is None or order.is_here:
        return None if order.cwd is None else real_directory(order.cwd, "cwd")
    if not Path(order.cwd).is_absolute():
        raise invalid(f"cwd must be an absolute path on the machine {order.machine}.", field="cwd")
    return os.path.normpath(order.cwd)


def parent_of_clone(cwd: str) -> str | None:
    """Return the directory below which the hub's worker clones an agent's directory; None if it clones none there."""
    clone = runners().clone_of(cwd)
    return None if clone is None else clone.directory


def real_directory(path: str, field: str) -> str:
    """Return the real path of an absolute path, whether or not it exists. Raises VALIDATION_ERROR."""
    resolved = _real(path)
    if resolved is None or not Path(path).is_absolute():
        raise _no_directory(path, field)
    return resolved


def check_exists(path: str, field: str) -> None:
    """Check that a directory exists. Raises VALIDATION_ERROR."""
    if not os.path.isdir(path):  # noqa: PTH112 - Path's raises where a name is too long, or nobody lets us look
        raise _no_directory(path, field)


def _no_directory(path: str, field: str) -> NexusError:
    return invalid(f"{field} must be the absolute path of an existing directory; {path[:200]!r} is not.", field=field)


def parent_of(actor: Actor, named: str | None) -> PoolAgent | None:
    """Return the parent of a new agent. Raises NOT_FOUND for an unknown parent, NOT_PERMITTED if an agent names another
    than itself."""
    if actor.agent is None:
        return None if named is None else get(named)
    if named not in (None, actor.agent.agent_id):
        raise refused("lineage", "An agent creates below itself; leave parent_agent_id out.")
    return get(actor.agent.agent_id)  # read again, inside the transaction


def _name(wanted: str | None, actor: Actor) -> str:
    agent_id = wanted or secrets.token_hex(4)
    if find(agent_id):
        raise invalid(f"There is an agent {agent_id!r} already; choose another name, or destroy it.", field="agent_id")
    if Agent.everyone.filter(pk=agent_id).exists() and not _was_ours(agent_id, actor):
        raise invalid(f"{agent_id!r} is an agent that the pool did not create; choose another name.", field="agent_id")
    return agent_id


def _was_ours(agent_id: str, actor: Actor) -> bool:
    """Return whether the actor may give a new agent the identity and the mail of a former agent of this name."""
    before = PoolAgent.objects.filter(agent_id=agent_id)
    if actor.agent is not None:
        before = before.filter(parent=actor.agent)
    return before.exists()


def usual_directory(parent: PoolAgent | None, asked_in: str | None = None) -> str:
    """Return the default directory: the parent's, or that of the process that asks, else the server's.

    Raises VALIDATION_ERROR if the server's is gone.
    """
    try:
        return parent.cwd if parent is not None else asked_in or str(Path.cwd())
    except FileNotFoundError:
        raise invalid("The server's own directory is gone: name another one as cwd.", field="cwd") from None


def granted(order: Order, cwd: str | None, parent: PoolAgent | None, actor: Actor) -> rules.Permissions:
    """Return the permissions of a new agent. Raises VALIDATION_ERROR and NOT_PERMITTED."""
    ceiling = None if parent is None else parent.permissions
    if cwd is None and parent is None and not order.is_here:
        raise invalid(f"Name the agent's directory on the machine {order.machine} as cwd.", field="cwd")
    below = cwd or usual_directory(parent, order.asked_in)
    if order.is_here or order.write_paths is None:
        paths = None if order.write_paths is None else tuple(_write_path(path, below) for path in order.write_paths)
    else:
        paths = tuple(os.path.normpath(os.path.join(below, path)) for path in order.write_paths)
    wish = rules.RequestedPermissions(order.preset, cwd, paths, frozenset(order.disabled_tools))
    try:
        may = rules.grant(wish, parent=ceiling, default_cwd=below, by_parent=not actor.is_operator)
    except rules.Broken as broken:
        if broken.rule in ("preset", "tools"):
            raise invalid(str(broken), field="preset" if broken.rule == "preset" else "disable_tools") from None
        raise refused(broken.rule, str(broken)) from None
    if ceiling and any(protected_paths.is_hidden(path, ceiling.cwd) for path in (may.cwd, *may.write_paths)):
        raise refused("home", "An agent may not give access to the hub's home and database.")
    return may


def _budget(wanted: int | None, parent: PoolAgent | None, actor: Actor) -> int | None:
    """Return the tokens that a new agent's woken turns may take in a day; by default its parent's."""
    if actor.is_operator or parent is None:
        return wanted
    ceiling = wake_kinds.budget_of(parent)
    if wanted is not None and ceiling and (wanted == 0 or wanted > ceiling):
        raise refused(
            "budget",
            f"The parent's woken turns may take {ceiling} tokens a day, which is the limit of its children, too.",
        )
    return parent.wake_tokens if wanted is None else wanted


def _write_path(path: str, cwd: str) -> str:
    """Return the real path of a write path, which need not exist; a relative one starts at the agent's directory."""
    resolved = _real(os.path.join(cwd, path))
    if resolved is None:
        raise invalid("allowed_write_paths must hold paths.", field="allowed_write_paths")
    return resolved


def _real(path: str) -> str | None:
    """Return a path with its links resolved, whether or not it exists; None for an invalid path."""
    try:
        resolved = os.path.realpath(path)
        resolved.encode()
    except (OSError, ValueError):
        return None
    return resolved


END_ASKED = "pool.end_asked"
SERVER = "pool-server"  # the lock's kind: one server at a time runs a store's pool


def check_server_runs() -> None:
    """Check that a server runs the store's pool now. Raises POOL_OFF: otherwise a later server would read the request,
    which is not meant for it."""
    free = store().exclusive_lock(SERVER)
    if free is not None:
        free.release()
        raise NexusError(
            ControlCode.POOL_OFF,
            "No server runs this store's pool now, so none ends. One that has just started, or takes over from "
            "another, needs a second: ask again.",
        )


def ask_to_end(by: str) -> None:
    """Ask the server, in whichever process it is, to end."""
    with write():
        emit_of_pool(END_ASKED, None, now(), {"by": by})


def is_asked_to_end(after: int, upto: int) -> bool:
    """Return whether the end was requested after event `after`, up to event `upto`."""
    return Event.objects.filter(event_id__gt=after, event_id__lte=upto, stream=STREAM, type=END_ASKED).exists()
