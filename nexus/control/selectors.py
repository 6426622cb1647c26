"""The reads of this app."""

from __future__ import annotations

import shlex
from collections import Counter, defaultdict
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

from django.db.models import Count, F, Q, Sum
from django.db.models.functions import Left

from coordination.models import Workspace
from coordination.presence import agents_in
from nexus.control.agents import transcript
from nexus.control.agents.rows import (
    PROMPT,
    STEP,
    STEPS,
    Living,
    OutageRow,
    PoolAgentRow,
    TraceRow,
    WholeRunRow,
    WorkOfMachine,
    agent_row,
    outage_row,
    run_row,
    trace_row,
)
from nexus.control.agents.transcript import SESSION, tool_calls
from nexus.control.models import (
    HUB,
    Entry,
    Machine,
    MachineState,
    Outage,
    PoolAgent,
    Question,
    Role,
    Turn,
    TurnStatus,
    money,
)
from nexus.control.runners import processes, traffic
from nexus.control.runners_file import REHEARSAL, Acp, changed_at, runners, start_programs
from nexus.core.clock import iso, now
from nexus.core.operations.errors import not_found

RUNNING = 20  # runs of a machine on a page
RECENT_DAYS = 7  # for which a machine is shown that ended and has no agents
TRACED = 1_000_000  # characters of a part of a trace, or one line
TICK = timedelta(seconds=0.05)  # a file's time may be one tick of the system's clock behind,
COARSE = timedelta(seconds=2)  # or in whole seconds, on some file systems


def agents() -> list[PoolAgentRow]:
    """Return every living agent of the pool, oldest first."""
    living = [Living._make(row) for row in PoolAgent.objects.living().order_by("pk").values_list(*Living._fields)]
    children = Counter(agent.parent_id for agent in living)
    return [agent_row(agent, children=children[agent.pk]) for agent in living]


def turn(agent_id: str, request_id: str) -> Turn | None:
    """Return a turn of the latest agent of this name; None if there is none."""
    turns = Turn.objects.select_related("agent").filter(agent__agent_id=agent_id, request_id=request_id)
    return turns.order_by("-turn_id").first()


def runs(
    *, agent_id: str | None, outcome: str | None, needing_person: bool, before: str | None, limit: int
) -> list[Turn]:
    """Return runs, newest first, with `glimpse`, the beginning of the prompt; `before` is the run_id that they are
    older than."""
    rows = Turn.objects.select_related("agent").order_by("-turn_id")
    if needing_person:
        rows = rows.needing_person()
    if agent_id:
        rows = rows.filter(agent__agent_id=agent_id)
    if outcome:
        rows = rows.with_outcome(outcome)
    if before:
        rows = rows.filter(turn_id__lt=before)
    return list(rows.defer("content", "answer").annotate(glimpse=Left("content", PROMPT))[:limit])


def run(turn_id: str) -> Turn:
    """Return a run with its agent. Raises NOT_FOUND."""
    turn = Turn.objects.select_related("agent").filter(pk=turn_id).first()
    if turn is None:
        raise not_found("run", turn_id[:200])
    return turn


def whole_run(turn: Turn) -> WholeRunRow:
    """Return the row of a run with its steps."""
    entries = Entry.objects.filter(agent=turn.agent, turn=turn).exclude(role=Role.USER).order_by("position")
    steps = entries.annotate(cut=Left("content", STEP)).defer("content")[:STEPS]
    return {
        **run_row(turn),
        "answer": turn.answer,
        "retried_by": [each.pk for each in retries(turn)],
        "may_have_changed_files": transcript.may_have_changed_files(turn),
        "take_over": resume_command(turn),
        "steps": [
            {
                "index": entry.position,
                "at": iso(entry.created_at),
                "role": Role(entry.role).value,
                "content": vars(entry)["cut"],
                "calls": [call["name"] for call in tool_calls(entry.meta)],
            }
            for entry in steps
        ],
    }


class Spending(NamedTuple):
    """What an agent's runs in a directory spent, of one currency; None if their cost is unknown."""

    agent_id: str
    project: str
    currency: str | None
    runs: int
    tokens: int
    cost: int | None  # millionths

    @property
    def money(self) -> str:
        """The cost in words; empty if it is unknown."""
        return "" if self.cost is None else money(self.cost, self.currency)


def in_workspace(workspace: Workspace | None, pool_agent: str = "", name: str = "") -> Q:
    """Return the condition that an agent has, or had, a session in a workspace, or works below its root or in a
    worktree of it; without a workspace, all agents. `pool_agent` and `name` lead to the agent, and to its name."""
    if workspace is None:
        return Q()
    root, below = workspace.root_realpath, Q()
    for path in (f"{pool_agent}cwd", f"{pool_agent}worktree__origin"):
        below |= Q(**{path: root}) | Q(**{f"{path}__startswith": f"{root.rstrip('/')}/"})
    return below | Q(**{f"{name}agent_id__in": agents_in(workspace.pk)})


def names_in(workspace: Workspace) -> set[str]:
    """Return the names of the living agents of a workspace."""
    return set(PoolAgent.objects.living().filter(in_workspace(workspace)).values_list("agent_id", flat=True))


def spending(since: datetime, limit: int) -> list[Spending]:
    """Return what the runs spent that ended since then, those with the most tokens first."""
    of = ("agent__agent_id", "agent__cwd", "currency")
    sums = Turn.objects.filter(ended_at__gt=since, started_at__isnull=False).order_by().values_list(*of)
    tokens = Sum(F("input_tokens") + F("output_tokens"))
    rows = sums.annotate(runs=Count("pk"), tokens=tokens, paid=Sum("cost")).order_by("-tokens", *of)[:limit]
    return [Spending(*row) for row in rows]


def trace(turn: Turn, after: int, limit: int) -> tuple[list[TraceRow], int | None]:
    """Return lines of a run's traffic after so many, and the number to go on after; None at the end."""
    found, size = list[TraceRow](), 0
    for number, line in enumerate(traffic.lines_of(turn.agent.agent_id, turn.pk)):
        if number < after:
            continue
        if len(found) == limit or (found and size > TRACED):
            return found, number
        found.append(trace_row(line))
        size += len(found[-1]["text"])
    return found, None


def machines() -> list[WorkOfMachine]:
    """Return the machines by name, the hub's own first, with their agents and runs; not those that ended long ago and
    have no agents."""
    occupied = PoolAgent.objects.living().values("machine")
    recent = Machine.objects.exclude(ended_at__lt=now() - timedelta(days=RECENT_DAYS))
    shown = recent | Machine.objects.filter(pk__in=occupied)
    return work_of(sorted(shown, key=lambda each: (each.pk != HUB, each.pk)))


def work_of(machines: Sequence[Machine]) -> list[WorkOfMachine]:
    """Return machines with their agents and runs."""
    agents = Counter(PoolAgent.objects.living().values_list("machine", flat=True))
    running: dict[str, list[Turn]] = defaultdict(list)
    turns = Turn.objects.open().filter(status=TurnStatus.RUNNING).select_related("agent").defer("content")
    for turn in turns.order_by("started_at", "turn_id"):
        running[turn.agent.machine].append(turn)
    waiting = _waiting_by_machine()
    return [
        WorkOfMachine(each, agents[each.pk], running[each.pk][:RUNNING], len(running[each.pk]), waiting.get(each.pk, 0))
        for each in machines
    ]


def _waiting_by_machine() -> dict[str, int]:
    queued = Turn.objects.queued().order_by()
    return dict(queued.values_list("agent__machine").annotate(Count("pk")))


def waiting_for_machines() -> list[tuple[str, str, int]]:
    """Return the machines that begin no run although some wait: their names, states, and waiting runs."""
    waiting = _waiting_by_machine()
    known = Machine.objects.filter(pk__in=waiting).order_by("name")
    states = {each.name: each.state.value for each in known if each.state != MachineState.WORKING}
    # The hub's own worker starts again by itself.
    return [(name, state, waiting[name]) for name, state in states.items() if (name, state) != (HUB, "ended")]


def outages() -> list[OutageRow]:
    """Return the runners whose providers are out."""
    found = list(Outage.objects.met())
    waiting = waiting_for_runners([outage.runner for outage in found])
    return [outage_row(outage, waiting.get(outage.runner, 0)) for outage in found]


def waiting_for_runners(names: Sequence[str]) -> dict[str, int]:
    """Return the number of runs that wait, by runner."""
    queued = Turn.objects.queued().order_by().filter(agent__runner__in=names)
    return dict(queued.values_list("agent__runner").annotate(Count("pk")))


def retries(turn: Turn) -> list[Turn]:
    """Return the runs that retry this one, oldest first, without their texts."""
    return list(Turn.objects.filter(retry_of=turn.pk).defer("content", "answer").order_by("pk"))


def resume_command(turn: Turn) -> str | None:
    """Return the command line that continues a run's session in a person's terminal; None if there is none."""
    runner = runners().by_name.get(turn.runner or turn.agent.runner)
    if not isinstance(runner, Acp) or not runner.take_over:
        return None
    said = Entry.objects.filter(agent=turn.agent, turn__lte=turn.pk, meta__isnull=False).order_by("-position")
    metas = said.values_list("meta", flat=True)[: transcript.PAGE]
    session = next((meta[SESSION] for meta in metas.iterator(1) if meta and SESSION in meta), None)
    if session is None:
        return None
    command = shlex.join(word.replace("{session}", session) for word in runner.take_over)
    home = processes.environment_of(turn.agent)["HOME"]
    return f"cd {shlex.quote(turn.agent.cwd)} && HOME={shlex.quote(home)} {command}"


def questions(which: str, agent_id: str | None, limit: int) -> list[Question]:
    """Return questions to the operators: `asked`, oldest first, or `ended`, newest first."""
    rows = Question.objects.with_parents()
    if agent_id is not None:
        rows = rows.filter(agent_id=agent_id)
    if which == "asked":
        return list(rows.waiting(now()).order_by("question_id")[:limit])
    return list(rows.exclude(ended_at=None).order_by("-ended_at", "-question_id")[:limit])


def current_request(agent_id: str) -> str | None:
    """Return the request_id of an agent's running turn, else of the next one; None if there is none."""
    turns = Turn.objects.open().filter(agent__agent_id=agent_id, agent__ended_at=None)
    at_first = F("started_at").asc(nulls_last=True)
    return turns.order_by(at_first, "turn_id").values_list("request_id", flat=True).first()


def programs_may_run() -> bool:
    """Return whether a runner may start programs, or a turn still runs that began with an earlier runners file."""
    if start_programs():
        return True
    running, changed = Turn.objects.filter(status=TurnStatus.RUNNING), changed_at()
    if changed is None:
        return running.exclude(agent__runner=REHEARSAL.name).exists()
    return running.filter(started_at__lte=changed + (TICK if changed.microsecond else COARSE)).exists()
