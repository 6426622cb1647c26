"""The life of handoffs against a naive model of the contract, through random histories."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import hypothesis.strategies as st
import pytest
import time_machine
from django.db import transaction
from hypothesis import settings
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)

from coordination.toolset import run
from handoffs.models import Handoff, Remark
from inbox.models import Delivery
from tests.conftest import LOCAL, examples
from tests.handoffs.conftest import events_of

PROJECT = tempfile.gettempdir()
HELD = ("CLAIMED", "IN_PROGRESS", "BLOCKED")
AGENTS = ("ana", "bob", "cleo")  # bob and cleo know python
TARGETS: dict[str, dict[str, Any]] = {
    "bob": {"strategy": "direct", "agent_id": "bob"},
    "python": {"strategy": "capability", "capability": "python"},
    "everyone": {"strategy": "broadcast"},
    "bob, then python": {
        "strategy": "direct_with_fallback",
        "agent_id": "bob",
        "fallback_after_seconds": 60,
        "fallback": {"strategy": "capability", "capability": "python"},
    },
}
agents = st.sampled_from(AGENTS)


@dataclass
class Work:
    """A handoff as the contract describes it."""

    handoff_id: str
    creator: str
    kind: str
    visibility: str
    born: datetime
    status: str = "OPEN"
    deadline: datetime | None = None
    verifier: str | None = None
    claimant: str | None = None
    lease: int | None = None
    lease_ends: datetime | None = None
    reason: str | None = None
    remarks: int = 0
    had: set[str] = field(default_factory=set)
    late: set[str] = field(default_factory=set)
    events: list[str] = field(default_factory=lambda: ["handoff.created"])

    def admits(self, agent: str, now: datetime) -> bool:
        admitted = {
            "bob": {"bob"},
            "python": {"bob", "cleo"},
            "everyone": set(AGENTS),
            "bob, then python": {"bob", "cleo"} if now - self.born >= timedelta(seconds=60) else {"bob"},
        }
        return agent in admitted[self.kind]

    def shows(self, agent: str, now: datetime) -> bool:
        return self.visibility == "public" or agent == self.creator or self.admits(agent, now)

    def becomes(self, status: str, event: str, claimant: str | None, lease_ends: datetime | None = None) -> None:
        self.status, self.claimant, self.lease_ends, self.reason = status, claimant, lease_ends, None
        self.events.append(f"handoff.{event}")

    @property
    def judge(self) -> str | None:
        """Who verifies it, unless that is who did it."""
        judge = self.creator if self.verifier == "creator" else self.verifier
        return None if judge == self.claimant else judge


class Lifecycle(RuleBasedStateMachine):
    """A few handoffs, three agents and one clock."""

    works = Bundle("works")

    def __init__(self) -> None:
        super().__init__()
        self.atomic = transaction.atomic()
        self.atomic.__enter__()
        self.travel = time_machine.travel(datetime(2026, 3, 1, 12, tzinfo=UTC), tick=False)
        self.clock = self.travel.start()
        self.all: list[Work] = []
        self.mail: Counter[str] = Counter()

    def teardown(self) -> None:
        self.travel.stop()
        transaction.set_rollback(True)
        self.atomic.__exit__(None, None, None)

    @property
    def now(self) -> datetime:
        return datetime.now(UTC)

    def code(self, verb: str, work: Work, agent: str, **more: Any) -> str:
        """What an act on a handoff is answered: `ok` or the code of the error."""
        arguments = {"project_root": PROJECT, "handoff_id": work.handoff_id, "agent_id": agent, **more}
        envelope = run(LOCAL, verb, arguments)
        if envelope["ok"] and verb != "handoff_get":  # to look is no act
            self.renew(agent)
        return "ok" if envelope["ok"] else envelope["error"]["code"]

    def renew(self, agent: str) -> None:
        """Whatever an agent does renews what it has, once half of a lease is over."""
        for work in self.all:
            if work.claimant == agent and work.lease_ends is not None and work.lease is not None:
                left = work.lease_ends - self.now
                if timedelta(0) <= left < timedelta(seconds=work.lease) / 2:
                    work.lease_ends = self.now + timedelta(seconds=work.lease)

    def reopen_lapsed(self) -> None:
        for work in self.all:
            if work.lease_ends is not None and work.lease_ends < self.now:
                work.becomes("OPEN", "expired", None)
        for work in self.all:
            if work.status == "OPEN" and work.deadline is not None and work.deadline < self.now:
                work.becomes("EXPIRED", "timed_out", None)
                self.mail[work.creator] += 1

    def tell_creator(self, work: Work, agent: str) -> None:
        if agent != work.creator:
            self.mail[work.creator] += 1

    @initialize()
    def register(self) -> None:
        for agent in AGENTS:
            skills = [] if agent == "ana" else ["python"]
            assert run(LOCAL, "agent_register", {"agent_id": agent, "capabilities": skills})["ok"]

    @rule(
        target=works,
        creator=agents,
        kind=st.sampled_from(sorted(TARGETS)),
        visibility=st.sampled_from(["public", "eligible", "private"]),
        deadline=st.none() | st.integers(1, 500),
        verifier=st.sampled_from([None, "creator", "ana", "bob"]),
    )
    def create(self, creator: str, kind: str, visibility: str, deadline: int | None, verifier: str | None) -> Work:
        envelope = run(
            LOCAL,
            "handoff_create",
            {
                "project_root": PROJECT,
                "from_agent_id": creator,
                "target": TARGETS[kind],
                "visibility": visibility,
                "deadline_seconds": deadline,
                "verifier": {"agent_id": verifier} if verifier in AGENTS else verifier,
            },
        )
        work = Work(envelope["data"]["handoff_id"], creator, kind, visibility, self.now)
        work.deadline = None if deadline is None else self.now + timedelta(seconds=deadline)
        work.verifier = verifier
        self.all.append(work)
        self.renew(creator)
        if kind.startswith("bob"):
            self.mail["bob"] += 1
        return work

    @rule(work=works, agent=agents, lease=st.sampled_from([None, 10, 60, 900]))
    def claim(self, work: Work, agent: str, lease: int | None) -> None:
        self.reopen_lapsed()
        if not work.admits(agent, self.now):
            expected = "NOT_ELIGIBLE_TO_CLAIM"
        elif work.status == "EXPIRED":
            expected = "INVALID_TRANSITION"
        elif work.status != "OPEN":
            expected = "HANDOFF_ALREADY_CLAIMED"
        else:
            expected = "ok"
            work.lease = lease or 300
            work.becomes("CLAIMED", "claimed", agent, self.now + timedelta(seconds=work.lease))
            work.had.add(agent)

        assert self.code("handoff_claim", work, agent, lease_seconds=lease) == expected

    @rule(work=works, agent=agents)
    def start(self, work: Work, agent: str) -> None:
        self.reopen_lapsed()
        expected = self.of_holder(work, agent)
        if expected == "ok" and work.status != "IN_PROGRESS":
            work.becomes("IN_PROGRESS", "started", agent, work.lease_ends)

        assert self.code("handoff_start", work, agent) == expected

    @rule(work=works, agent=agents, reason=st.sampled_from(["no key", "no time"]))
    def block(self, work: Work, agent: str, reason: str) -> None:
        self.reopen_lapsed()
        expected = self.of_holder(work, agent)
        if expected == "ok" and work.reason != reason:
            work.becomes("BLOCKED", "blocked", agent, work.lease_ends)
            work.reason = reason
            self.tell_creator(work, agent)

        assert self.code("handoff_block", work, agent, reason=reason) == expected

    @rule(work=works, agent=agents, seconds=st.sampled_from([None, 30, 1000]))
    def extend(self, work: Work, agent: str, seconds: int | None) -> None:
        self.reopen_lapsed()
        expected = self.of_holder(work, agent)
        if expected == "ok":
            assert work.lease_ends is not None
            work.lease_ends = max(work.lease_ends, self.now + timedelta(seconds=seconds or work.lease or 0))
            work.events.append("handoff.extended")

        assert self.code("handoff_extend", work, agent, seconds=seconds) == expected

    def of_holder(self, work: Work, agent: str) -> str:
        if work.status not in HELD:
            return "INVALID_TRANSITION"
        return "ok" if work.claimant == agent else "NOT_OWNER"

    @rule(work=works, agent=agents)
    def complete(self, work: Work, agent: str) -> None:
        expected = self.of_holder(work, agent)
        if expected == "ok" and work.verifier is not None:
            work.becomes("SUBMITTED", "submitted", agent)
            if work.judge is not None:
                self.mail[work.judge] += 1
        elif expected == "ok":
            work.becomes("COMPLETED", "completed", agent)
            self.tell_creator(work, agent)
        elif agent in work.had and agent != work.claimant and agent not in work.late:
            work.late.add(agent)
            work.remarks += 1
            work.events.append("handoff.remarked")

        assert self.code("handoff_complete", work, agent) == expected

    @rule(work=works, agent=agents)
    def accept(self, work: Work, agent: str) -> None:
        expected = self.of_judge(work, agent)
        if expected == "ok":
            assert work.claimant is not None
            work.events.append("handoff.accepted")
            work.becomes("COMPLETED", "completed", work.claimant)
            self.mail.update({work.claimant, work.creator} - {agent})

        assert self.code("handoff_accept", work, agent) == expected

    @rule(work=works, agent=agents)
    def give_back(self, work: Work, agent: str) -> None:
        expected = self.of_judge(work, agent)
        if expected == "ok":
            assert work.claimant is not None and work.lease is not None
            work.becomes("CLAIMED", "returned", work.claimant, self.now + timedelta(seconds=work.lease))
            work.remarks = work.remarks + 2 if work.events.count("handoff.returned") == 1 else work.remarks
            self.mail[str(work.claimant)] += 1

        assert self.code("handoff_return", work, agent, reasons="no tests") == expected

    def of_judge(self, work: Work, agent: str) -> str:
        if work.status != "SUBMITTED":
            return "INVALID_TRANSITION"
        return "ok" if agent == work.judge else "NOT_OWNER"

    @rule(work=works, agent=agents)
    def reject(self, work: Work, agent: str) -> None:
        if work.status not in ("OPEN", *HELD):
            expected = "INVALID_TRANSITION"
        elif agent != (work.claimant if work.status in HELD else "bob" if work.kind == "bob" else None):
            expected = "NOT_OWNER"
        else:
            expected = "ok"
            work.becomes("REJECTED", "rejected", work.claimant)
            self.tell_creator(work, agent)

        assert self.code("handoff_reject", work, agent) == expected

    @rule(work=works, agent=agents)
    def cancel(self, work: Work, agent: str) -> None:
        self.reopen_lapsed()
        if agent != work.creator:
            expected = "NOT_OWNER"
        elif work.status != "OPEN":
            expected = "INVALID_TRANSITION"
        else:
            expected = "ok"
            work.becomes("CANCELLED", "cancelled", None)

        assert self.code("handoff_cancel", work, agent) == expected

    @rule(work=works, agent=agents)
    def get(self, work: Work, agent: str) -> None:
        self.reopen_lapsed()
        allowed = work.shows(agent, self.now) or agent == work.claimant

        assert self.code("handoff_get", work, agent) == ("ok" if allowed else "NOT_OWNER")

    @rule(agent=agents)
    def list_available(self, agent: str) -> None:
        self.reopen_lapsed()
        offered = [w.handoff_id for w in self.all if w.status == "OPEN" and w.admits(agent, self.now)]

        page = run(LOCAL, "handoff_list_available", {"project_root": PROJECT, "agent_id": agent})["data"]

        assert [handoff["handoff_id"] for handoff in page["handoffs"]] == offered

    @rule(seconds=st.integers(1, 400))
    def time_passes(self, seconds: int) -> None:
        self.clock.shift(seconds)

    @rule(work=works, offset=st.sampled_from([-1, 0, 1]))
    def a_boundary_comes(self, work: Work, offset: int) -> None:
        boundary = (work.lease_ends or work.born + timedelta(seconds=60)) + timedelta(microseconds=offset)
        if boundary > self.now:
            self.clock.move_to(boundary)
        for agent in AGENTS:
            self.list_available(agent)

    @invariant()
    def the_store_holds_what_the_model_holds(self) -> None:
        rows = Handoff.objects.order_by("created_event_id").values_list(
            "handoff_id", "status", "claimed_by", "lease_expires_at", "blocked_reason"
        )
        assert list(rows) == [(w.handoff_id, w.status, w.claimant, w.lease_ends, w.reason) for w in self.all]
        assert Remark.objects.count() == sum(work.remarks for work in self.all)
        assert [events_of(work.handoff_id) for work in self.all] == [work.events for work in self.all]
        assert Counter(Delivery.objects.values_list("recipient_id", flat=True)) == self.mail


@pytest.fixture
def played(db: None, every_act_renews: None) -> Iterator[Lifecycle]:
    """The machine, to be played by hand."""
    machine = Lifecycle()
    machine.register()
    yield machine
    machine.teardown()


STATES = {
    "open": [],
    "claimed": ["claim"],
    "in progress": ["claim", "start"],
    "blocked": ["claim", "block"],
    "lapsed": ["claim", "lapse"],
    "submitted": ["claim", "complete"],
    "returned": ["claim", "complete", "give_back"],
    "completed": ["claim", "complete", "accept"],
    "rejected": ["claim", "reject"],
    "cancelled": ["cancel"],
    "expired": ["lapse"],
    "expired after a claim": ["claim", "lapse"],
}
ACTS: dict[str, tuple[Any, ...]] = {
    **dict.fromkeys(("start", "complete", "accept", "give_back", "reject", "cancel", "get"), ()),
    "claim": (None,),
    "block": ("no key",),
    "extend": (30,),
}


@pytest.mark.parametrize(("state", "kind"), [*((state, "python") for state in STATES), ("open", "bob")])
def test_everybody_is_answered_so_in_each_state(played: Lifecycle, state: str, kind: str) -> None:
    """Ana offered it and verifies it, bob had it; cleo may have had it where it is for python."""
    verifier = "creator" if state in ("submitted", "returned", "completed") else None
    for act, more in ACTS.items():
        for agent in AGENTS:
            work = played.create("ana", kind, "private", 60 if state.startswith("expired") else None, verifier)
            for step in STATES[state]:
                if step == "lapse":
                    played.time_passes(301)
                else:
                    who = "ana" if step in ("accept", "give_back", "cancel") else "bob"
                    getattr(played, step)(work, who, *ACTS[step])
            getattr(played, act)(work, agent, *more)
    played.the_store_holds_what_the_model_holds()


@pytest.mark.parametrize("kind", ["bob, then python", "everyone"])
@pytest.mark.parametrize("visibility", ["public", "eligible", "private"])
def test_everybody_sees_it_so_at_each_boundary(played: Lifecycle, kind: str, visibility: str) -> None:
    """A fallback opens at its instant, and a lease is over right after its last one; the late result still counts."""
    work = played.create("ana", kind, visibility, None, None)
    for claims in (False, True):
        if claims:
            played.claim(work, "bob", 10)
        for offset in (-1, 0, 1):
            played.a_boundary_comes(work, offset)
            for agent in AGENTS:
                played.get(work, agent)
            played.the_store_holds_what_the_model_holds()
    played.claim(work, "bob", 60)
    for seconds in (30, 1):  # with half of its lease left, nothing is renewed
        played.time_passes(seconds)
        played.create("ana", kind, visibility, None, None)  # another's act renews nothing of bob's
        played.the_store_holds_what_the_model_holds()
        played.start(work, "bob")
        played.the_store_holds_what_the_model_holds()
    for extension in (30, None, 1000, 30):
        played.extend(work, "bob", extension)
        played.the_store_holds_what_the_model_holds()
    played.time_passes(1001)
    played.complete(work, "bob")
    played.the_store_holds_what_the_model_holds()


@pytest.mark.hypothesis
@pytest.mark.django_db
@pytest.mark.usefixtures("every_act_renews")
def test_it_behaves_as_the_naive_model_of_a_handoffs_life_does() -> None:
    run_state_machine_as_test(
        Lifecycle, settings=settings(max_examples=examples(60), stateful_step_count=30, deadline=None)
    )
