"""Waking of agents: an item becomes a turn, in one transaction with the lease of the mail."""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Collection, Iterator
from datetime import datetime, timedelta
from functools import partial
from itertools import islice, takewhile
from pathlib import Path
from typing import Any

from django.db.models import Exists, OuterRef

from coordination.ids import new_id
from coordination.paths import workspace_id_of
from inbox.lifecycle import MAX_ATTEMPTS
from inbox.models import ARRIVALS
from nexus.control.agents import turns, wake_kinds
from nexus.control.agents.wake_kinds import MAIL, Item, declared
from nexus.control.models import PoolAgent, PoolAgentQuerySet, PoolWorktree, Turn, TurnStatus, Wake
from nexus.control.permissions.members import get
from nexus.core.background_work import Failures
from nexus.core.clock import now
from nexus.core.contributions import WakeReason
from nexus.core.database.store import write
from nexus.core.waiting import READERS, WRITERS, in_thread, waiter

log = logging.getLogger(__name__)

RENEW_SECONDS = 60.0
LOOK_SECONDS = 1.0  # between two looks when no event came: leases expire without one


def callable_by(kinds: Collection[str]) -> list[str]:
    """Return the pool_agent_ids of free agents that have mail, or an item of these kinds, to wake for."""
    moment = now()
    free = list(_free())
    by_mail = [agent.agent_id for agent in free if MAIL in agent.wake_on]
    with_mail = wake_kinds.agents_with_mail(by_mail, moment) if by_mail else set()
    return [
        agent.pk
        for agent in free
        if (MAIL in agent.wake_on and agent.agent_id in with_mail) or next(_calling(agent, kinds, moment), None)
    ]


def wake(agent_pk: str, kinds: Collection[str]) -> Turn | None:
    """Start a turn of an agent with the items that wake it; None if there are none any more, or a limit holds the
    agent.

    Mail comes first: it is leased for the turn. Other items are tried again while they wait, at most five times.
    """
    moment = now()
    with write():
        agent = _free().filter(pk=agent_pk).first()
        if agent is None:
            return None
        callings = islice(_calling(agent, kinds, moment), wake_kinds.MOST_MESSAGES)
        items = _mail(agent, moment) or wake_kinds.fitting([wake_kinds.wake_item(*each) for each in callings])
        if not items:
            return None
        depth = max(wake_kinds.depth_after(item.sender, item.sent_at, agent.resumed_at) for item in items)
        if why := wake_kinds.limit_reached(agent, depth, moment):
            wake_kinds.hold(agent, why, moment)
            return None
        turn_id = new_id("turn")
        if items[0].kind == MAIL:
            items = wake_kinds.mail_items(wake_kinds.pull_mail(agent.agent_id, len(items), turn_id))
            if not items:  # all of it was parked
                return None
        wake_kinds.let_go(agent, None, moment)
        turn = Turn(
            turn_id=turn_id,
            agent=agent,
            request_id=secrets.token_hex(8),
            content=wake_kinds.message_of(items),
            source=items[0].kind,
            source_agent_id=items[0].sender,
            depth=depth,
            queued_at=moment,
        )
        wakes = [Wake(turn=turn, kind=item.kind, item=item.identifier, sender=item.sender) for item in items]
        failed = Turn.objects.needing_person().filter(agent=agent, wakes__item__in=[item.identifier for item in items])
        failed.update(needs_person_since=None)  # this turn is their retry
        turns.queue_turn(turn, items[0].sender, wakes)
    return turn


def resume(agent_id: str, by: str) -> PoolAgent:
    """Let an agent be woken again: chains and tokens are counted from now on. Raises NOT_FOUND."""
    moment = now()
    with write():
        agent = get(agent_id)
        agent.resumed_at = moment
        agent.save(update_fields=["resumed_at"])
        wake_kinds.let_go(agent, by, moment)
    return agent


def renew() -> None:
    """Renew the leases of the mail of open turns."""
    wake_kinds.renew_mail(now())


def _free() -> PoolAgentQuerySet:
    """Return the agents that may be woken and have no open turn."""
    at_work = Turn.objects.open().filter(agent=OuterRef("pk"))
    return PoolAgent.objects.living().exclude(wake_on=[]).filter(~Exists(at_work))


def _mail(agent: PoolAgent, moment: datetime) -> list[Item]:
    if MAIL not in agent.wake_on:
        return []
    return wake_kinds.fitting(wake_kinds.mail_items(wake_kinds.oldest_mail(agent.agent_id, moment)))


def _calling(agent: PoolAgent, kinds: Collection[str], moment: datetime) -> Iterator[tuple[str, WakeReason]]:
    """Yield the items besides mail that wake an agent and were not handled yet."""
    origin = PoolWorktree.objects.filter(agent=agent).values_list("origin", flat=True).first()
    directories = [Path(path) for path in (agent.cwd, origin) if path]
    workspaces = {workspace_id_of(str(here)) for path in directories for here in (path, *path.parents)}
    for name in sorted({*kinds} & {*agent.wake_on} & {*declared()}):
        for calling in declared()[name].calling(agent.agent_id, workspaces):
            if not _handled(agent, name, calling, moment):
                yield name, calling


def _handled(agent: PoolAgent, kind: str, calling: WakeReason, moment: datetime) -> bool:
    """Return whether an item is not to wake the agent now: a turn with it ended well since it came up, the agent
    received it without a turn, it was tried often enough, or its next try is not due."""
    with_it = Turn.objects.filter(agent=agent, wakes__kind=kind, wakes__item=calling.identifier)
    tries = list(with_it.order_by("-queued_at")[:MAX_ATTEMPTS])
    in_vain = list(takewhile(lambda turn: turn.status != TurnStatus.DONE, tries))
    if not in_vain:
        return calling.received or any(turn.queued_at >= calling.since for turn in tries[:1])
    last = in_vain[0]
    if len(in_vain) == MAX_ATTEMPTS:
        return True
    if last.status == TurnStatus.INTERRUPTED or last.ended_at is None:
        return False
    return moment < last.ended_at + timedelta(seconds=wake_kinds.retry_seconds(len(in_vain)))


class WakeWatch:
    """What may have changed since the last look."""

    def __init__(self) -> None:
        self._stirred = set(wake_kinds.declared())
        self._looked = -RENEW_SECONDS
        self._failures = Failures(log)

    def may_wake(self, event: Any) -> bool:
        """Return whether an event may wake an agent, and remember its kind."""
        ended = event.type in turns.ENDS  # its agent is free again, also for earlier items
        stirred = {name for name, kind in wake_kinds.declared().items() if ended or event.type in kind.events}
        self._stirred |= stirred
        return ended or bool(stirred) or event.type in ARRIVALS

    async def work(self) -> None:
        """Wake agents until cancelled."""
        while True:
            try:
                async with waiter().park(self.may_wake) as parked:  # park first, so that no event is missed
                    while True:
                        await self.look()
                        self._failures.succeeded(None, "agents are woken")
                        await parked.wait(LOOK_SECONDS)
            except Exception as error:
                self._failures.failed(None, "no agents could be woken", error)
                await asyncio.sleep(LOOK_SECONDS)

    async def look(self) -> None:
        """Start the turns of agents that an item wakes. Mail is checked each time, because its leases expire without an
        event."""
        if (clock := asyncio.get_running_loop().time()) - self._looked >= RENEW_SECONDS:
            self._looked = clock
            self._stirred = set(wake_kinds.declared())
            await in_thread(WRITERS, renew)
        stirred, self._stirred = self._stirred, set()
        try:
            for agent_pk in await in_thread(READERS, partial(callable_by, stirred)):
                await in_thread(WRITERS, partial(wake, agent_pk, stirred))
        except Exception:
            self._stirred |= stirred  # retry them in the next look
            raise
