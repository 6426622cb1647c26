"""The demo's hub, and the demo's second part: a pool on it, whose planner and workers wake each other by mail."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from string import Template
from typing import NamedTuple

import httpx

from coordination.log.lines import lines, quiet_types
from coordination.models import Event
from handoffs.models import Handoff, HandoffStatus
from inbox.models import Delivery, DeliveryStatus
from nexus.client import NexusClient, ServerTokenManager
from nexus.control.agents.wakeups import MAIL
from nexus.control.models import PoolAgent, Turn, TurnStatus, Wake
from nexus.control.runners.rehearsal import NOTE
from nexus.control.runners_file import FILE
from nexus.core.database.store import instead
from nexus.core.instance import Holder, running
from nexus.core.processes import NEUTRAL, STDOUT, Program, own_environment, python, start
from nexus_site import ending
from nexus_site.demo.team import DemoFailure, own_store
from nexus_site.demo.timeline import Line, Lines, Summary, newest_event

RUNNERS = Path(__file__).with_name("runners.toml")
ORDER = "Let the parser and the storage be built, by a worker each. Both shall use JSON."
PLANNER, WORKERS = "pool-planner", ("pool-worker-1", "pool-worker-2")
CAST, HANDOFFS = 1 + len(WORKERS), 2
LOOK_SECONDS = 0.05  # between two reads of the store
QUIET_SECONDS = 120.0  # without any event, after which it counts as hung
TOLD_OTHERWISE = {"agent.created", "agent.updated", "operator.acted", "workspace.created"}
BROKEN = {"turn.failed", "turn.cancelled", "turn.interrupted", "pool.held"}


class Hub(NamedTuple):
    """A hub that the demo started."""

    home: Path
    program: Program
    holder: Holder
    token: str

    def new_key(self, agent_id: str) -> str:
        """Return the key of a new agent. Raises DemoFailure."""
        answer = httpx.post(
            f"{self.holder.url}/api/v1/coordination/operations/agent_create",
            json={"agent_id": agent_id},
            headers={"Authorization": f"Bearer {self.token}"},
            trust_env=False,  # no proxy leads to this machine
        )
        if not answer.is_success:
            raise DemoFailure(f"No key for {agent_id}: {answer.text[:200]}")
        key: str = answer.json()["data"]["api_key"]
        return key


def play(hub: Hub, project: Path, account: Lines) -> Summary:
    """Let the pool's planner work until it says that it is done, end the hub, and compare the result with the store.

    Raises DemoFailure where the hub does not end, or a turn fails.
    """
    with instead(own_store(hub.home)):
        before = newest_event()
        ending.run(_order(hub, project))
        _follow(hub, before, account)
        return _summary(project, hub.program.process.returncode)


@contextmanager
def serving(home: Path, pause: float) -> Iterator[Hub]:
    """Run a hub with a pool over a throwaway home, on a free port, and end it afterwards in any case.

    Raises DemoFailure where it does not start.
    """
    home.mkdir(mode=0o700)
    (home / FILE).write_text(Template(RUNNERS.read_text()).substitute(pause=pause))
    command = python("nexus_site", "serve", "--control", "--port", "0", "--home", str(home))
    env, log = own_environment(settings=False), home / "hub.log"
    with (
        log.open("wb") as written,
        start(command, cwd=NEUTRAL, env=env, stdout=written, stderr=STDOUT) as program,
    ):
        yield _answering(program, home, log)


def _answering(program: Program, home: Path, log: Path) -> Hub:
    """Return the hub once it answers. Raises DemoFailure."""
    while program.process.poll() is None:
        holder = running(home)
        token = ServerTokenManager(holder.port, home).load() if holder else None
        if holder and token:
            return Hub(home, program, holder, token)
        time.sleep(LOOK_SECONDS)
    said = log.read_text(errors="replace").strip().rpartition("\n")[2]
    raise DemoFailure(f"The demo's hub did not start: {said or program.process.returncode}")


async def _order(hub: Hub, project: Path) -> None:
    """Create the planner and give it its task."""
    async with NexusClient(hub.holder.port, token=hub.token) as client:
        await client.create_agent(PLANNER, "trusted", project, model="planner", wake_on=["mail"], initial_message=ORDER)


async def _end(hub: Hub) -> None:
    """End the hub as its operator: an agent's own word ends none."""
    async with NexusClient(hub.holder.port, token=hub.token) as client:
        await client.shutdown_server()


def _follow(hub: Hub, seen: int, account: Lines) -> None:
    """Print what happens after the event `seen` until the planner is done and the hub has ended. Raises DemoFailure
    where it does not end."""
    heard_at = time.monotonic()
    while True:
        over = hub.program.process.poll() is not None  # before the read, which then sees its last writes
        events = list(Event.objects.filter(event_id__gt=seen).order_by("event_id"))
        if events:
            seen, heard_at = events[-1].event_id, time.monotonic()
            narrate(events, account)
            if any(event.type == "pool.shutdown_asked" for event in events):
                ending.run(_end(hub))
        if over:
            return
        if time.monotonic() - heard_at > QUIET_SECONDS:
            raise DemoFailure(f"The demo's hub did not end: nothing happened for {QUIET_SECONDS:g} s")
        time.sleep(LOOK_SECONDS)


def narrate(events: list[Event], account: Lines) -> None:
    """Print each event as a sentence, as on the dashboard, with an agent's answers. Raises DemoFailure for a failed
    turn."""
    silent = {*quiet_types(), *TOLD_OTHERWISE}
    for line in lines([event for event in events if event.type not in silent]):
        sentence = "".join(part.text for part in line.parts)
        if line.event.type in BROKEN:
            raise DemoFailure(sentence)
        actor, about = line.event.actor_agent_id or "-", line.event.payload
        if line.event.type == "turn.queued" and about["source"] == MAIL:
            sentence, actor = f"{about['agent_id']} is woken by mail of {actor}", about["agent_id"]
        elif line.event.type == "turn.done":
            sentence = " ".join(f"{sentence}: {Turn.objects.get(pk=about['turn_id']).answer}".split())
        account.say(actor, sentence)


def _summary(project: Path, exit_code: int | None) -> Summary:
    """Compare what should be in the store with what is."""
    here = {"workspace__root_realpath": str(project)}
    turns = Turn.objects.all()
    done = turns.filter(status=TurnStatus.DONE)
    mail = Delivery.objects.filter(recipient_id__in=(PLANNER, *WORKERS))
    handled = Wake.objects.filter(kind=MAIL, turn__in=done).values_list("item", flat=True)
    gone = PoolAgent.objects.exclude(ended_at=None) | PoolAgent.objects.filter(should_shutdown=True)
    return Summary(
        [
            Line(
                "handoffs completed", HANDOFFS, Handoff.objects.filter(**here, status=HandoffStatus.COMPLETED).count()
            ),
            Line("claims in the log", HANDOFFS, Event.objects.filter(**here, type="handoff.claimed").count()),
            Line("turns that ended well", turns.count(), done.count()),
            Line("answers that say: a rehearsal", turns.count(), done.filter(answer__startswith=NOTE).count()),
            Line("mails that woke their reader", mail.count(), len(handled)),
            Line(
                "of these acknowledged at once",
                mail.count(),
                mail.filter(message_id__in=handled, status=DeliveryStatus.READ, attempts=1).count(),
            ),
            Line("agents that ended, or closed", CAST, gone.count()),
            Line("exit code of the hub", 0, -1 if exit_code is None else exit_code),
            Line("events, without a gap", newest_event(), Event.objects.count()),
        ],
        [],
    )
