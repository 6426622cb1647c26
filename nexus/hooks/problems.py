"""Hooks of clients on this machine that fail, or that do not run although `nexus setup` installed them.

A hook that fails, and the guard where it cannot check, leave a file in the home (`nexus.hooks.hook_state`). One that
the client refuses leaves nothing: its agent acts, and the files of the hook stay old.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from coordination.models import Agent
from nexus.core.clock import now
from nexus.core.coding_clients import CLIENTS, HARNESSES
from nexus.core.config import CoreSettings
from nexus.core.operations.errors import not_found
from nexus.hooks import hook_state, setup_record
from nexus.hooks.harness import derived_id

GRACE = timedelta(minutes=10)  # between an agent's act and its hook's latest run; and to start a client anew
MOST = 500  # hooks that are looked at


class HookProblem(NamedTuple):
    """A hook that an operator must look at."""

    hook_id: str
    agent_id: str
    project_root: str
    title: str
    advice: str
    since: datetime


def list_problems() -> list[HookProblem]:
    """Return the problems that nobody has dismissed, the latest first."""
    home = CoreSettings.current().home
    silent = (each for each in _silent(home) if not _is_dismissed(home, each))
    found = {each.hook_id: each for each in (*silent, *failing(home))}
    return sorted(found.values(), key=lambda each: each.since, reverse=True)


def dismiss(hook_id: str) -> HookProblem:
    """Hide a problem until the hook fails again, or stops running after it ran again. Raises NOT_FOUND."""
    problem = next((each for each in list_problems() if each.hook_id == hook_id), None)
    if problem is None:
        raise not_found("hook", hook_id[:200])
    hook_state.dismiss(CoreSettings.current().home, hook_id)
    return problem


def failing(home: Path) -> Iterator[HookProblem]:
    """Yield the failures on record that nobody has dismissed, the latest first."""
    for fault in hook_state.faults(home):
        if fault.refused:
            title = f"A {fault.refused} of {fault.agent_id or 'a person'} was refused without a check"
            then = f"so git's hook in {fault.project_root} refuses everything (guard_unreadable is closed)"
        elif fault.passed:
            title = f"A {fault.passed} of {fault.agent_id or 'a person'} was not checked"
            then = f"so git's hook in {fault.project_root} let it pass (guard_unreadable is open)"
        else:
            title = f"The hook of {fault.agent_id} fails"
            then = "until it works, no mail is announced to this agent"
        since = datetime.fromtimestamp(fault.at, UTC)
        problem = HookProblem(
            fault.hook_id, fault.agent_id, fault.project_root, title, f"{fault.error} – {then}", since
        )
        if not _is_dismissed(home, problem):
            yield problem


def _silent(home: Path) -> Iterator[HookProblem]:
    installed = list(islice(_installed(home), MOST))
    names = [derived_id(client, root, home) for client, root, _ in installed]
    acted = dict(Agent.objects.filter(pk__in=names).values_list("pk", "last_seen_at"))
    for agent_id, (client, root, since) in zip(names, installed, strict=True):
        last_act = acted.get(agent_id)
        hook_id = hook_state.hook_id(agent_id, root)
        ran = hook_state.last_run(home, hook_id)
        begun = since if ran is None else datetime.fromtimestamp(ran, UTC)
        if last_act is None or last_act - max(begun, since) < GRACE:
            continue
        yield HookProblem(
            hook_id,
            agent_id,
            root,
            f"{agent_id} is at work, but its hook does not run",
            f"No mail is announced to it. {CLIENTS[client].first}",
            begun,
        )


def _installed(home: Path) -> Iterator[tuple[str, str, datetime]]:
    """Yield the client, the project and the time of each installation of hooks by `nexus setup`."""
    for file, written in setup_record.readable(home):
        try:
            since = datetime.fromtimestamp(file.stat().st_mtime, UTC)
        except OSError:
            continue  # it was removed meanwhile
        for each in written.files.values():
            for kind, client in each.parts:
                if kind != "server" and client in HARNESSES:
                    yield client, written.project_root, since


def _is_dismissed(home: Path, problem: HookProblem) -> bool:
    dismissed = hook_state.dismissed_at(home, problem.hook_id)
    return dismissed is not None and problem.since.timestamp() <= dismissed <= now().timestamp()
