"""`nexus demo`: shows a small team of agents at work."""

from __future__ import annotations

import asyncio
import sys
import tempfile
from collections.abc import Mapping
from contextlib import AsyncExitStack, ExitStack
from pathlib import Path
from typing import Any

from django.core.management.base import CommandParser

from nexus.core.cli import Group, NexusCommand, positive
from nexus.core.config import CoreSettings
from nexus.core.database.store import instead
from nexus.core.instance import running
from nexus.core.operations.errors import Code, NexusError
from nexus_site import ending
from nexus_site.demo import pool, team, timeline
from nexus_site.demo.team import Agent, joined
from nexus_site.demo.timeline import Lines, Timeline

OBSERVER = "demo-observer"
CAST = {
    team.PLANNER: ("planner", []),
    **{worker: ("worker", [team.SKILL]) for worker in team.WORKERS},
    team.REVIEWER: ("reviewer", ["review"]),
    OBSERVER: ("observer", []),
}
POOL = (
    "Now the same without anybody who starts agents: the demo's hub runs a pool. Its planner creates two workers and "
    "hands work to them; mail wakes its recipient. A rehearsal plays all three from a script: no model answers."
)


class Command(NexusCommand):
    group = Group.HUB
    help = (
        "Show a small team at work. First come a planner, two workers that compete and a reviewer: each is a real MCP "
        "client of this home's hub, or, if none runs, of a hub that the demo starts over a temporary home. Then the "
        "demo's hub runs a pool, whose agents wake one another by mail; a script answers instead of a model. Exit code "
        "1 if anything was lost or won twice."
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
        try:
            sound = self._show(rounds, max(pause, 0), keep)
        except* BrokenPipeError:
            raise BrokenPipeError from None
        except* Exception as failures:
            raise _early(failures) from None
        if not sound:
            self.stderr.write("Something was lost or won twice.")
            sys.exit(1)

    def _show(self, rounds: int, pause: float, keep: bool) -> bool:
        """Show both parts; return whether nothing was lost and nothing won twice."""
        account = Lines(self.stdout.write, colour=sys.stdout.isatty())
        with tempfile.TemporaryDirectory(prefix="nexus-demo-") as scratch, ExitStack() as stack:
            home, team_project, pool_project = (Path(scratch).resolve() / name for name in ("home", "team", "pool"))
            team_project.mkdir()
            pool_project.mkdir()
            served = running(CoreSettings.current().home)
            if served:
                team_played = self._show_team(served.url, str(team_project), rounds, pause, account, keep)
                hub = stack.enter_context(pool.serving(home, pause))
            else:
                self.stdout.write("A hub of the demo starts, over a throwaway home.\n")
                hub = stack.enter_context(pool.serving(home, pause))
                team_played = self._show_own_team(hub, str(team_project), rounds, pause, account)
            self.stdout.write(f"\n{POOL}\n{team.links(hub.holder.url, 'Pool', 'Runs')}\n\n")
            pool_played = pool.play(hub, pool_project, account)
            self.stdout.write(f"\n{pool_played.table()}\n")
        return team_played.sound and pool_played.sound

    def _show_own_team(
        self, hub: pool.Hub, project: str, rounds: int, pause: float, account: Lines
    ) -> timeline.Summary:
        """Play the team on the demo's own hub."""
        score, keys = team.Score(), {agent_id: hub.new_key(agent_id) for agent_id in CAST}
        claims = ending.run(self._play(hub.holder.url, keys, project, score, rounds, pause, account))
        with instead(team.own_store(hub.home)):
            played = timeline.account(project, score, claims, 0)
        self.stdout.write(f"\n{played.table()}\n")
        return played

    def _show_team(
        self, url: str, project: str, rounds: int, pause: float, account: Lines, keep: bool
    ) -> timeline.Summary:
        """Play the team on the hub that serves this home; its agents leave at the end, unless they are kept."""
        score, started_after = team.Score(), timeline.newest_event()
        try:
            keys = {agent_id: team.new_key(agent_id) for agent_id in CAST}
            claims = ending.run(self._play(url, keys, project, score, rounds, pause, account))
            played = timeline.account(project, score, claims, started_after)
        finally:
            stays = "The team's agents stay: `nexus agents` lists them." if keep else team.leave(CAST, project)
        self.stdout.write(f"\n{played.table()}\n{stays}\n")
        return played

    async def _play(
        self,
        url: str,
        keys: Mapping[str, str],
        project: str,
        score: team.Score,
        rounds: int,
        pause: float,
        account: Lines,
    ) -> dict[str, list[str]]:
        """Play the team; return the claims that a viewer saw, by handoff."""
        self.stdout.write(f"The agents play on the hub at {url}: open a page in a browser and look on.\n")
        self.stdout.write(f"{team.links(url, 'Timeline', 'Board', 'Events')}\n\n")
        async with AsyncExitStack() as present:
            agents: dict[str, Agent] = {}
            for agent_id, (role, skills) in CAST.items():
                transport = team.transport(url, keys[agent_id])
                agents[agent_id] = await present.enter_async_context(joined(transport, agent_id, project, role, skills))
            timeline = Timeline(agents[OBSERVER], account.report)
            for agent in agents.values():
                agent.report = account.report
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
