"""Fill a store with the work of a busy team, written in bulk, the same every time."""

from __future__ import annotations

import random
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

from django.db import transaction

from coordination.ids import new_id
from coordination.log.selectors import newest_event_id
from coordination.models import Agent, Artifact, Event, Session, Workspace
from coordination.services.workspaces import locate
from handoffs.models import Handoff
from inbox.models import Delivery, Message
from nexus.reservations.models import Reservation
from nexus.reservations.patterns import extension, prefix_key
from nexus.topics.models import Peer, Topic, TopicMessage

BATCH = 5000
COURSE = ("claimed", "started", "blocked", "started", "submitted", "accepted")  # of a handoff, one every two minutes
WORDS = "parser index cache socket review branch merge test build deploy queue lease inbox worker plan".split()


class Sizes(NamedTuple):
    """How much of everything, and within how many days."""

    messages: int
    events: int
    handoffs: int
    posts: int  # in one topic
    reservations: int  # held; four times as many ended
    agents: int = 200
    days: int = 30
    busy: float = 0.0  # the share of all mail that goes to one agent

    def scaled(self, scale: float) -> Sizes:
        """As many agents and days, with that share of what they made."""
        return self._replace(**{name: int(getattr(self, name) * scale) for name in self._fields[:5]})


YEARS = Sizes(
    messages=500_000, events=2_000_000, handoffs=20_000, posts=100_000, reservations=5_000, agents=1_000, days=365,
    busy=0.2,
)  # fmt: skip


def fill_store(sizes: Sizes, end: datetime, project: Path) -> dict[str, Any]:
    """Fill it up to `end`, and return what its pages are asked for; one of the team's projects is at `project`."""
    team = Team(sizes, end, project)
    team.fill()
    work = Work(team, sizes)
    work.fill_mail()
    work.fill_handoffs()
    topics = fill_topics(sizes.posts, end)
    fill_reservations(team.workspaces[0].pk, sizes, end)
    return {
        "counts": {
            model.__name__: model.objects.count() for model in (Agent, Message, Delivery, Event, Handoff, TopicMessage)
        },
        "topics": topics,
        "event": newest_event_id(),
        "message": Message.objects.order_by("-message_id")[0].pk,
        "parked": Delivery.objects.filter(status="parked")[0].message_id,
        "handoff": Handoff.objects.first().pk,  # type: ignore[union-attr]
        "workspace": team.workspaces[0].pk,
        "artifact": Artifact.objects.first().pk,  # type: ignore[union-attr]
        "step": work.created[0].pk,
        "topic_message": f"tms_long_{sizes.posts // 2:07d}",
    }


class Team:
    """The agents in five projects, and what they keep."""

    def __init__(self, sizes: Sizes, end: datetime, project: Path):
        roots = {f"{i:064x}": f"/srv/project-{i}" for i in range(4)}
        roots = {locate(str(project)).workspace_id: str(project), **roots}
        self.end = end
        self.rng = random.Random(7)
        self.names = [f"agent-{i:03d}" for i in range(sizes.agents)]
        self.workspaces = [
            Workspace(
                workspace_id=workspace_id,
                display_name=f"project {i}",
                root_realpath=root,
                created_at=end - timedelta(days=sizes.days),
                last_seen_at=end,
            )
            for i, (workspace_id, root) in enumerate(roots.items())
        ]

    @transaction.atomic
    def fill(self) -> None:
        Workspace.objects.bulk_create(self.workspaces)
        Agent.objects.bulk_create(map(self._agent, self.names))
        Session.objects.bulk_create(self._session(name) for name in self.names for _ in range(5))
        Artifact.objects.bulk_create(self._artifact() for _ in range(10 * len(self.names)))

    def _agent(self, name: str) -> Agent:
        return Agent(
            agent_id=name,
            role=self.rng.choice(["worker", "reviewer"]),
            capabilities=[self.rng.choice(WORDS)],
            created_at=self.end,
            updated_at=self.end,
            last_seen_at=self.end,
        )

    def _session(self, name: str) -> Session:
        return Session(
            session_id=new_id("ses"),
            agent_id=name,
            workspace=self.rng.choice(self.workspaces),
            secret_hash="-",
            started_at=self.end,
            last_heartbeat_at=self.end - timedelta(seconds=self.rng.choice([5, 300, 90_000])),
        )

    def _artifact(self) -> Artifact:
        return Artifact(
            artifact_id=new_id("art"),
            workspace=self.rng.choice(self.workspaces),
            artifact_type="text",
            content="x" * 500,
            size_bytes=500,
            content_type="text/plain",
            created_at=self.end,
        )


class Work:
    """What the team sent and handed over, spread over the days, and its log."""

    def __init__(self, team: Team, sizes: Sizes):
        self.rng, self.end = team.rng, team.end
        self.names, self.workspaces = team.names, team.workspaces
        self.days, self.busy = sizes.days, sizes.busy
        self.messages, self.events, self.handoffs = sizes.messages, sizes.events, sizes.handoffs
        self.every = self.messages // self.handoffs  # messages to a handoff
        self.held = self.handoffs // 100  # handoffs that are in progress
        self.created = dict[int, Event]()  # by handoff, its first event

    def fill_mail(self) -> None:
        """Every message, with what the log says of its time: so that is in order."""
        for start in range(0, self.messages, BATCH):
            sent, delivered, logged = [], [], []
            for i in range(start, min(start + BATCH, self.messages)):
                message, delivery = self._mail(i)
                sent.append(message)
                delivered += [delivery] if delivery else []
                logged += [_said(message), *self._steps(i, message.created_at), *self._chatter(i, message)]
            with transaction.atomic():
                Message.objects.bulk_create(sent)
                Delivery.objects.bulk_create(delivered)
                Event.objects.bulk_create(logged)

    @transaction.atomic
    def fill_handoffs(self) -> None:
        Handoff.objects.bulk_create(map(self._handoff, range(self.handoffs)))

    def _at(self, i: int, of: int) -> datetime:
        return self.end - timedelta(days=self.days) * (1 - (i + 1) / of)

    def _mail(self, i: int) -> tuple[Message, Delivery | None]:
        """The message of this number, one of 500 to nobody; the older ones are read."""
        moment, sender, workspace = self._at(i, self.messages), self.rng.choice(self.names), self._anywhere()
        recipient = self.names[0] if self.rng.random() < self.busy else self.rng.choice(self.names)
        old = i < self.messages * 0.97
        status = "read" if old else self.rng.choice(["unread", "unread", "delivered", "read"])
        status = "parked" if i % 9973 == 1 else status
        message = Message(
            message_id=_timed_id("msg", moment, i),
            workspace=workspace,
            from_agent_id=sender,
            target={"strategy": "direct", "agent_id": recipient},
            subject=" ".join(self.rng.sample(WORDS, 3)),
            body=" ".join(self.rng.choices(WORDS, k=25)),
            created_at=moment,
            recipients_count=0 if i % 500 == 0 else 1,
        )
        if not message.recipients_count:
            return message, None
        return message, Delivery(
            delivery_id=_timed_id("dlv", moment, i),
            message=message,
            recipient_id=recipient,
            status=status,
            attempts=1,
            delivered_at=moment,
            read_at=moment + timedelta(seconds=self.rng.expovariate(0.02)) if status == "read" else None,
            lease_expires_at=moment + timedelta(seconds=300) if status == "delivered" else None,
            created_at=moment,
        )

    def _anywhere(self) -> Workspace:
        return self.rng.choice(self.workspaces)

    def _steps(self, i: int, moment: datetime) -> Iterator[Event]:
        """What happens to handoffs when the message of this number is sent: one begins, those before it go on."""
        number, between = divmod(i, self.every)
        if between:
            return
        self.created[number] = self._step(number, "created", moment)
        yield self.created[number]
        for handoff, what in ((number - after, what) for after, what in enumerate(COURSE, 1)):
            goes_on = handoff % 12 and (handoff < self.handoffs - self.held or what not in ("submitted", "accepted"))
            if handoff >= 0 and goes_on:
                yield self._step(handoff, what, moment)

    def _step(self, number: int, what: str, moment: datetime) -> Event:
        return Event(
            workspace=self.workspaces[number % 5],
            stream="handoff",
            type=f"handoff.{what}",
            actor_agent_id=self.names[number % len(self.names)] if what == "created" else self._holder(number),
            payload={"handoff_id": self._handoff_id(number)},
            handoff_id=self._handoff_id(number),
            created_at=moment,
        )

    def _chatter(self, i: int, message: Message) -> list[Event]:
        """As many other events as a message has on average."""
        more = self.events - self.messages
        return [
            Event(
                workspace=message.workspace,
                stream="workspace",
                type=self.rng.choice(["session.heartbeat", "artifact.created"]),
                actor_agent_id=message.from_agent_id,
                payload={"agent_id": message.from_agent_id, "note": self.rng.choice(WORDS)},
                created_at=message.created_at,
            )
            for _ in range(int((i + 1) * more / self.messages) - int(i * more / self.messages))
        ]

    def _handoff(self, number: int) -> Handoff:
        moment = self._at(number, self.handoffs)
        return Handoff(
            handoff_id=self._handoff_id(number),
            workspace=self.workspaces[number % 5],
            from_agent_id=self.rng.choice(self.names),
            title=" ".join(self.rng.sample(WORDS, 3)),
            target={"strategy": "capability", "capability": self.rng.choice([*WORDS, "none"])},
            visibility="public",
            **self._standing(number),
            payload="x" * 300,
            created_event_id=self.created[number].pk,
            created_at=moment,
            updated_at=moment,
        )

    def _standing(self, number: int) -> dict[str, Any]:
        """What became of a handoff: one of twelve is open, of the newest some are held, every third lease ran out."""
        if number % 12 == 0:
            return {"status": "OPEN"}
        held = {"claimed_by": self._holder(number), "claimed_at": self._at(number, self.handoffs)}
        if number < self.handoffs - self.held:
            return {**held, "status": "COMPLETED", "result": "done"}
        until = self.end + timedelta(hours=-1 if number % 3 == 0 else 24)
        return {**held, "status": "IN_PROGRESS", "lease_seconds": 3600, "lease_expires_at": until}

    def _holder(self, number: int) -> str:
        return self.names[(number * 7 + 3) % len(self.names)]

    def _handoff_id(self, number: int) -> str:
        return _timed_id("hnd", self._at(number, self.handoffs), number)


def _said(message: Message) -> Event:
    return Event(
        workspace=message.workspace,
        stream="workspace",
        type="message.created",
        actor_agent_id=message.from_agent_id,
        payload={"message_id": message.message_id, "subject": message.subject},
        created_at=message.created_at,
    )


def _timed_id(prefix: str, moment: datetime, i: int) -> str:
    return f"{prefix}_{int(moment.timestamp() * 1000):012x}{i:020x}"


def fill_topics(messages: int, end: datetime) -> dict[str, str]:
    """An empty topic, a short one, one of so many messages, and as many in rooms of 100: the ids by name.

    Every third message is an answer.
    """
    sizes = {"empty": 0, "short": 50, "long": messages}
    sizes |= {f"room_{room}": 100 for room in range(messages // 100)}
    with transaction.atomic():
        for name, size in sizes.items():
            Topic.objects.create(
                topic_id=f"tpc_{name}", name=name, created_at=end - timedelta(days=30), last_seq=size,
                last_message_at=end if size else None,
            )  # fmt: skip
            Peer.objects.bulk_create(
                Peer(topic_id=f"tpc_{name}", agent_name=f"peer-{number}", created_at=end, last_seq=size)
                for number in range(3)
            )
            TopicMessage.objects.bulk_create(
                (
                    TopicMessage(
                        message_id=f"tms_{name}_{seq:07d}",
                        topic_id=f"tpc_{name}",
                        seq=seq,
                        sender=f"peer-{seq % 3}",
                        message_type="message" if seq % 3 else "answer",
                        reply_to=None if seq % 3 else f"tms_{name}_{seq - 2:07d}",
                        content_markdown=f"The **cache** of part {seq} is `warm`:\n\n- read twice\n- written once",
                        created_at=end - timedelta(seconds=size - seq),
                    )
                    for seq in range(1, size + 1)
                ),
                batch_size=BATCH,
            )
    return {name: f"tpc_{name}" for name in sizes}


def fill_reservations(workspace_id: str, sizes: Sizes, end: datetime) -> None:
    """The reservations of files that are held, and four times as many that ended."""
    held = sizes.reservations
    Reservation.objects.bulk_create(
        (_reserved(number, workspace_id, end, number >= held) for number in range(5 * held)), batch_size=2000
    )


def _reserved(number: int, workspace_id: str, end: datetime, over: bool) -> Reservation:
    pattern = f"src/area_{number % 50}/part_{number % 7}/module_{number}.py"
    at = end - timedelta(seconds=number)
    return Reservation(
        reservation_id=f"rsv_{number:07d}", workspace_id=workspace_id, agent_id=f"agent-{number % 200:03d}",
        pattern=pattern, place=prefix_key(pattern), extension=extension(pattern), exclusive=True, item=0,
        reason="The parser of this part moves into a file of its own", seconds=86_400, created_at=at,
        expires_at=end + timedelta(days=1), released_at=at if over else None, outcome="released" if over else None,
    )  # fmt: skip
