"""`nexus demo`: shows a small team of agents at work."""

from __future__ import annotations

import asyncio
import sys
import tempfile
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from django.core.management.base import CommandParser

from nexus.core.cli import Group, NexusCommand, positive
from nexus.core.config import CoreSettings
from nexus.core.instance import running
from nexus.core.operations.errors import Code, NexusError
from nexus_site import ending
from nexus_site.demo import pool, team, timeline
from nexus_site.demo.team import Agent, Stage, hub, joined, throwaway
from nexus_site.demo.timeline import Lines, Timeline

OBSERVER = "demo-observer"
CAST = {
    team.PLANNER: ("planner", []),
    **{worker: ("worker", [team.SKILL]) for worker in team.WORKERS},
    team.REVIEWER: ("reviewer", ["review"]),
    OBSERVER: ("observer", []),
}
POOL = (
    "Now the same without anybody who starts agents: a hub of its own runs a pool. Its planner creates two workers and "
    "hands work to them; mail wakes its recipient. A rehearsal plays all three from a script: no model answers."
)


class Command(NexusCommand):
    group = Group.HUB
    help = (
        "Show a small team at work. First come a planner, two workers that compete and a reviewer: each is a real MCP "
        "client of this home's hub, or, if none runs, of its own server process in a temporary home. Then a second hub "
        "runs a pool, whose agents wake one another by mail; a script answers instead of a model. Exit code 1 if "
        "anything was lost or won twice."
    )
    examples = """examples:
  nexus demo
  nexus demo --rounds 30 --fast
  nexus demo --keep                     the agents stay on the hub that runs

exit codes: 0 nothing was lost and nothing won twice; 1 something was"""

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--rounds", type=positive, default=8, help="handoffs of the team (default: %(default)s)")
        pace = parser.add_mutually_exclusive_group()
        pace.add_argument("--pause", type=float, default=1.0, help="seconds between steps (default: %(default)s)")
        pace.add_argument("--fast", action="store_const", const=0.02, dest="pause", help="almost without pauses")
        parser.add_argument("--keep", action="store_true", help="on a running hub: do not delete the team's agents")

    def run(self, *, rounds: int, pause: float, keep: bool, **options: Any) -> None:
        pause = max(pause, 0)
        with tempfile.TemporaryDirectory(prefix="nexus-demo-") as scratch:
            project = Path(scratch).resolve() / "project"
            project.mkdir()
            account = Lines(self.stdout.write, colour=sys.stdout.isatty())
            holder = running(CoreSettings.current().home)
            stage = hub(holder) if holder else throwaway(Path(scratch) / "home")
            score, started_after = team.Score(), timeline.newest_event() if holder else 0
            try:
                claims = ending.run(self._play(stage, project, score, rounds, pause, account))
                with stage.store():
                    team_played = timeline.account(str(project), score, claims, started_after)
            except* BrokenPipeError:
                raise BrokenPipeError from None
            except* Exception as failures:
                raise _early(failures) from None
            finally:
                stays = "The team's agents stay: `nexus agents` lists them." if keep and holder else ""
                stays = stays or stage.leave(CAST, str(project))
            self.stdout.write(f"\n{team_played.table()}\n")
            if stays:
                self.stdout.write(f"{stays}\n")
            self.stdout.write(f"\n{POOL}\n\n")
            try:
                pool_played = pool.play(Path(scratch) / "pool", project, pause, account)
            except* Exception as failures:
                raise _early(failures) from None
            self.stdout.write(f"\n{pool_played.table()}\n")
        if not (team_played.sound and pool_played.sound):
            self.stderr.write("Something was lost or won twice.")
            sys.exit(1)

    async def _play(
        self, stage: Stage, project: Path, score: team.Score, rounds: int, pause: float, account: Lines
    ) -> dict[str, list[str]]:
        """Play the demo; return the claims that a viewer saw, by handoff."""
        self.stdout.write(f"{stage.description}\n\n")
        async with AsyncExitStack() as present:
            agents: dict[str, Agent] = {}
            for agent_id, (role, skills) in CAST.items():
                transport = await asyncio.to_thread(stage.transport, agent_id)  # on the hub's stage, this issues a key
                agents[agent_id] = await present.enter_async_context(
                    joined(transport, agent_id, str(project), role, skills)
                )
            timeline = Timeline(agents[OBSERVER], account.tell)
            for agent in agents.values():
                agent.tell = account.tell
            await timeline.begin()  # before any agent acts
            watching = [
                asyncio.create_task(timeline.follow()),
                asyncio.create_task(team.review(agents[team.REVIEWER], score)),
            ]
            try:
                async with asyncio.TaskGroup() as playing:
                    for worker in team.WORKERS:
                        playing.create_task(team.work(agents[worker], score, pause))
                    playing.create_task(team.plan(agents[team.PLANNER], score, rounds, pause))
                await _settled(agents)
            finally:
                for task in watching:
                    task.cancel()
                await asyncio.gather(*watching, return_exceptions=True)
        return timeline.claims


def _early(failures: BaseExceptionGroup[Exception]) -> NexusError:
    return NexusError(Code.INTERNAL_ERROR, f"The demo ended early: {_first(failures)}")


def _first(failures: BaseExceptionGroup[Exception]) -> str:
    """Return the first failure in one line."""
    failure: BaseException = failures
    while isinstance(failure, BaseExceptionGroup):
        failure = failure.exceptions[0]
    return " ".join(str(failure).split())[:300] or type(failure).__name__


async def _settled(agents: dict[str, Agent]) -> None:
    """Let every agent read its remaining mail."""
    while True:
        received = [await agent.receive() for agent in agents.values()]
        counts = [await agent.call("inbox_count", agent_id=agent.agent_id) for agent in agents.values()]
        if not any(received) and not any(count["unread"] + count["in_flight"] for count in counts):
            return
