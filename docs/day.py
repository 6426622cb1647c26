"""A day of a team of twelve, played into a home in a minute, to look at: who works on what, what is stuck, what needs
a person.

    python -m docs.day --home /tmp/day && nexus serve --home /tmp/day

The clock is moved, the operations are the real ones. It ends now, with some work under way and some of it in trouble.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

HOURS = 9
STEP = timedelta(minutes=4)
BUILDERS = {
    "ada": ["python"], "ben": ["python", "sql"], "chen": ["typescript"], "dara": ["typescript", "css"],
    "emil": ["python"], "fatou": ["sql"], "gil": ["typescript"], "hana": ["docs"],
}  # fmt: skip
REVIEWERS = ("ines", "jonas")
AREAS = {"python": "api", "sql": "store", "typescript": "web", "css": "web/styles", "docs": "docs"}
VERBS = ("Add", "Fix", "Rework", "Speed up", "Test", "Document")
THINGS = (
    "the login", "password reset", "the search box", "invoices as PDF", "the CSV import", "pages of results",
    "time zones", "the audit trail", "webhooks", "dark mode", "rate limits", "the upload of pictures", "roles",
    "the order form", "the nightly report", "translations",
)  # fmt: skip
REASONS = ("The schema is not merged yet.", "Waiting for the API key of the test system.", "Two specs disagree.")
FINDINGS = ("The empty case is missing.", "A test fails on Windows paths.", "Please keep the old parameter.")


@dataclass
class Builder:
    """One at work: on which handoff, until when, on which files."""

    name: str
    skills: list[str]
    handoff: str | None = None
    until: datetime | None = None
    blocked: bool = False
    gone: bool = False
    files: list[str] = field(default_factory=list)


class Day:
    """The team's project, and the operations that it calls."""

    def __init__(self, root: Path, seed: int) -> None:
        self.place = {"project_root": str(root)}
        self.chance = random.Random(seed)  # noqa: S311  # a day, not a secret
        self.builders = [Builder(name, skills) for name, skills in BUILDERS.items()]
        self.sessions: dict[str, str] = {}
        self.titles = [f"{verb} {thing}" for thing in THINGS for verb in VERBS]
        self.chance.shuffle(self.titles)

    def do(self, operation: str, /, toolset: str = "coordination", **arguments: Any) -> dict[str, Any]:
        """Call an operation; what is refused is part of a day."""
        from nexus.core.operations import dispatch
        from nexus.core.operations.caller import OPERATOR_AGENT, Caller
        from nexus.core.operations.errors import NexusError
        from nexus.core.operations.registry import TOOLSETS

        boss = arguments.get("from_agent_id") == OPERATOR_AGENT
        caller = Caller(transport="day", operator="olga" if boss else None)
        try:
            answer = dict(dispatch.perform(TOOLSETS[toolset], caller, operation, arguments).result())
        except NexusError as refused:
            return {"refused": str(refused.code)}
        return dict(answer.get("data") or answer)

    def begin(self) -> None:
        """Everybody registers, in a project with a name."""
        self.do("workspace_resolve", **self.place, display_name="shop")
        people: dict[str, tuple[str, list[str]]] = {
            "planner": ("planner", []),
            **{name: ("reviewer", []) for name in REVIEWERS},
            "kim": ("tester", []),
        }
        people |= {builder.name: ("builder", builder.skills) for builder in self.builders}
        workspace = self.do("workspace_resolve", **self.place)["workspace_id"]
        for name, (role, skills) in people.items():
            self.do("agent_register", agent_id=name, role=role, capabilities=skills)
            opened = self.do("session_open", agent_id=name, workspace_id=workspace)
            self.sessions[name] = opened["session_id"]
        self.say("operator", "planner", "Today: everything for the shop's release.")

    def step(self, moment: datetime) -> None:
        """A few minutes of everybody's work."""
        for name, session in self.sessions.items():
            if not any(builder.name == name and builder.gone for builder in self.builders):
                self.do("session_heartbeat", session_id=session)
        if self.chance.random() < 0.55 and self.titles:
            self.offer(self.titles.pop(), self.chance.choice(list(AREAS)))
        for builder in self.builders:
            if not builder.gone:
                self.work(builder, moment)
        for reviewer in REVIEWERS:
            self.review(reviewer)
        for name in self.sessions:
            if self.chance.random() < 0.4:
                pulled = self.do("inbox_pull", agent_id=name, limit=5).get("messages", [])
                self.do("inbox_ack", agent_id=name, message_ids=[row["message_id"] for row in pulled])

    def offer(self, title: str, skill: str, **more: Any) -> str:
        """The planner hands work over."""
        target = {"strategy": "capability", "capability": skill}
        made = self.do(
            "handoff_create", **{"from_agent_id": "planner", "visibility": "public", "target": target, "title": title,
            "payload": {"task": title, "where": AREAS.get(skill, "")}, "verifier": {"role": "reviewer"}, **more},
            **self.place,
        )  # fmt: skip
        return str(made["handoff_id"])

    def work(self, builder: Builder, moment: datetime) -> None:
        """Take something, go on with it, be blocked for a while, or bring it."""
        mine: dict[str, Any] = {**self.place, "agent_id": builder.name, "handoff_id": builder.handoff}
        if builder.handoff is None:
            offers = self.do("handoff_list_available", agent_id=builder.name, limit=5, **self.place)["handoffs"]
            if offers and self.chance.random() < 0.7:
                self.take(builder, offers[0], moment)
        elif builder.blocked:
            if self.chance.random() < 0.25:
                self.do("handoff_start", **mine)
                builder.blocked = False
        elif self.chance.random() < 0.03:
            self.do("handoff_block", **mine, reason=self.chance.choice(REASONS))
            builder.blocked = True
        elif builder.until is not None and moment >= builder.until:
            self.do("handoff_complete", **mine, result={"summary": "Done, with tests.", "files": builder.files})
            builder.handoff, builder.files = None, []
        elif self.chance.random() < 0.12:
            other = self.chance.choice([name for name in self.sessions if name != builder.name])
            self.say(builder.name, other, self.chance.choice(("Which branch?", "Heads-up", "May I touch your file?")))

    def take(self, builder: Builder, offer: dict[str, Any], moment: datetime) -> None:
        """Claim, reserve the files, begin."""
        claimed = self.do(
            "handoff_claim", agent_id=builder.name, handoff_id=offer["handoff_id"], lease_seconds=1800, **self.place
        )
        if claimed.get("status") != "CLAIMED":
            return
        builder.handoff = offer["handoff_id"]
        builder.until = moment + timedelta(minutes=self.chance.randint(10, 70))
        builder.files = [
            f"{AREAS[builder.skills[0]]}/{offer['title'].split()[-1].lower()}{self.chance.randint(1, 9)}.py"
        ]
        self.do("files_reserve", "files", agent_id=builder.name, paths=builder.files, reason=offer["title"],
                handoff_id=builder.handoff, **self.place)  # fmt: skip
        self.do("handoff_start", agent_id=builder.name, handoff_id=builder.handoff, **self.place)

    def review(self, reviewer: str) -> None:
        """Read one submission, and say whether it counts."""
        from handoffs.models import Handoff, HandoffStatus

        waiting = Handoff.objects.filter(status=HandoffStatus.SUBMITTED).order_by("updated_at").first()
        if waiting is None or self.chance.random() < 0.5:
            return
        of = {**self.place, "agent_id": reviewer, "handoff_id": waiting.pk}
        if self.chance.random() < 0.85:
            self.do("handoff_accept", **of)
            return
        self.do("handoff_return", **of, reasons=self.chance.choice(FINDINGS))
        for builder in self.builders:
            if builder.name == waiting.claimed_by and builder.handoff is None and not builder.gone:
                builder.handoff, builder.until = waiting.pk, waiting.updated_at + timedelta(minutes=30)

    def say(self, sender: str, to: str, subject: str) -> None:
        """A short message."""
        target = {"strategy": "direct", "agent_id": to}
        body = f"{subject} It is about what I am at now."
        self.do("message_create", from_agent_id=sender, subject=subject, body=body, target=target, **self.place)

    def trouble(self) -> None:
        """What a person should see at the end of it."""
        self.builders[4].gone = True  # with whatever it holds
        self.offer("Port the scanner to Rust", "rust")
        direct = {"strategy": "direct", "agent_id": "kim"}
        self.offer("Try the release on a phone", "", target=direct, verifier="operator")
        self.say("planner", "operator", "May we drop Python 3.10?")


def play(home: Path, seed: int) -> None:
    """Play a day into a new home."""
    os.environ |= {
        "NEXUS_HOME": str(home),
        "DJANGO_SETTINGS_MODULE": "nexus_site.settings",
        "NEXUS_DURABILITY": "normal",
    }
    import django

    django.setup()
    import time_machine
    import uuid_utils

    from nexus.core.database.store import store

    make = uuid_utils.uuid7

    def moved() -> UUID:
        """Ids carry their time, by a clock that nothing moves; their order is kept."""
        seconds = round(time.time() - time_machine.escape_hatch.time.time())
        return UUID(int=make().int + (seconds * 1000 << 80))

    uuid_utils.uuid7 = moved  # type: ignore[assignment]  # it takes no argument, and is given none

    store().prepare()
    root = home / "shop"
    root.mkdir(exist_ok=True)
    day, end = Day(root, seed), datetime.now(UTC)
    steps = list(_moments(end))
    for number, moment in enumerate(steps):
        with time_machine.travel(moment):
            if number == 0:
                day.begin()
            if number == len(steps) - 8:
                day.trouble()
            day.step(moment)
        print(f"\r{moment:%H:%M}", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)


def _moments(end: datetime) -> Iterator[datetime]:
    moment = end - timedelta(hours=HOURS)
    while moment < end:
        yield moment
        moment += STEP


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--home", type=Path, required=True, help="a directory that is new")
    parser.add_argument("--seed", type=int, default=12)
    options = parser.parse_args()
    if options.home.exists():
        parser.error(f"{options.home} is there already: name a new directory")
    options.home.mkdir(mode=0o700, parents=True)
    play(options.home, options.seed)
    print(f"Look at it: nexus serve --home {options.home}")


if __name__ == "__main__":
    main()
