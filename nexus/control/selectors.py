"""The reads of this app, and its rows, as clients see them."""

from __future__ import annotations

import shlex
from collections import Counter, defaultdict
from datetime import datetime, timedelta
from typing import Annotated, Any, NamedTuple, NotRequired

from django.db.models import Count, F, Q, Sum
from django.db.models.functions import Left
from pydantic import Field
from typing_extensions import TypedDict

from coordination.models import Workspace
from coordination.presence import agents_in
from nexus.control.models import (
    HUB,
    Entry,
    FaultChoices,
    Machine,
    MachineState,
    Outage,
    Outcome,
    PermissionRule,
    PoolAgent,
    Question,
    QuestionStatus,
    Role,
    Turn,
    TurnStatus,
    money,
)
from nexus.control.prices import MILLIONTHS
from nexus.control.runners import processes, traffic
from nexus.control.runners.configuration import (
    REHEARSAL,
    Rehearsal,
    Runner,
    Speaking,
    Ssh,
    changed_at,
    runners,
    start_programs,
)
from nexus.control.services import transcript
from nexus.control.services.outages import fallback
from nexus.control.services.transcript import SESSION, tool_calls
from nexus.core.clock import iso, now
from nexus.core.database.prepared import Select, Slot
from nexus.core.operations.errors import invalid, not_found
from nexus.core.operations.parameters import Time, one_of

ASKED = QuestionStatus.ASKED.value
NEARLY = 0.8  # the used part of a context from which it should be compacted
PROMPT, STEP, STEPS = 160, 400, 500
RUNNING = 20  # runs of a machine on a page
RECENT_DAYS = 7  # for which a machine is shown that ended and has no agents
TRACED = 1_000_000  # characters of a part of a trace, or one line
TICK = timedelta(seconds=0.05)  # a file's time may be one tick of the system's clock behind,
COARSE = timedelta(seconds=2)  # or in whole seconds, on some file systems

_turn = Select(
    lambda: (
        Turn.objects.select_related("agent")
        .filter(agent__agent_id=Slot("agent_id"), request_id=Slot("request_id"))
        .order_by("-turn_id")
    )
)


class PoolAgentRow(TypedDict):
    agent_id: str
    is_temp: bool
    created_at: str
    message_count: int
    should_shutdown: bool
    parent_agent_id: str | None
    child_count: int
    halted_at_iteration_limit: bool
    model: Annotated[str, Field(description="Its runner.")]
    last_action_at: str
    permission_level: str
    cwd: str
    write_paths: list[str]


class Living(NamedTuple):
    """Columns that a list reads of a living agent, by name. Reading model instances would take three times as long."""

    pk: str
    parent_id: str | None
    agent_id: str
    is_temporary: bool
    created_at: datetime
    entries_known: int
    should_shutdown: bool
    parent__agent_id: str | None
    halted: bool
    runner: str
    last_action_at: datetime
    preset: str
    cwd: str
    write_paths: list[str]


class TokensRow(TypedDict):
    system: int
    tools: int
    messages: int
    total: int
    budget: int
    available: int
    remaining: int


class NewRepositories(TypedDict):
    set_aside: Annotated[list[str], Field(description="The newest 20, by their new names.")]
    unsafe: Annotated[str, Field(description="Why the last look for others failed; empty when it did not.")]


class ChoiceRow(TypedDict):
    value: str
    name: str


class OptionRow(TypedDict):
    id: Annotated[str, Field(description="mode, or the agent's own name for it, such as model.")]
    name: str
    value: str | bool
    choices: Annotated[list[ChoiceRow], Field(description="None: it is true or false.")]


class CommandRow(TypedDict):
    name: Annotated[str, Field(description="A message `/name …` calls it.")]
    description: str
    hint: Annotated[str, Field(description="What may follow.")]


class WindowRow(TypedDict):
    used: int
    size: int


class SignInRow(TypedDict):
    id: Annotated[str, Field(description="`nexus runners login RUNNER --method ID`")]
    name: str
    kind: Annotated[str, Field(description="agent, terminal (a program) or variables.")]


class SessionRow(TypedDict, total=False):
    options: list[OptionRow]
    commands: list[CommandRow]
    context: Annotated[WindowRow, Field(description="Tokens of its own context, as it counts them.")]
    sign_in: Annotated[list[SignInRow], Field(description="Ways to sign in.")]
    signed_out: Annotated[bool, Field(description="true: its last turn got no answer, because it wants a login.")]
    lost: Annotated[
        list[str], Field(description="What it wrote in its last turn where the sandbox is private, and emptied.")
    ]
    chosen: Annotated[dict[str, str | bool], Field(description="Values of options that an operator chose.")]


class ContextRow(TypedDict):
    message_count: int
    system_prompt: bool
    halted_at_iteration_limit: bool
    last_iteration_count: int
    max_tool_iterations: int
    session: NotRequired[Annotated[SessionRow, Field(description="What its process told last of its session.")]]
    new_repositories: NotRequired[
        Annotated[NewRepositories, Field(description="Git repositories that appeared where its programs write.")]
    ]


class PoolMessageRow(TypedDict):
    index: int
    role: str
    content: str
    tool_call_id: str | None
    meta: NotRequired[dict[str, Any]]


class QuestionRow(TypedDict):
    question_id: str
    agent_id: str
    parent_agent_id: Annotated[str | None, Field(description="The agent of the pool that the asker is below.")]
    kind: str
    title: str
    detail: str
    subject: str
    status: Annotated[str, one_of(QuestionStatus)]
    allowed: Annotated[bool, Field(description="Whether the agent may go on; false while nobody answered.")]
    always: Annotated[bool, Field(description="Whether the answer wrote a rule.")]
    always_allows: Annotated[list[str], Field(description="What the rules of an 'always' allow, in words.")]
    rule: Annotated[int | None, Field(description="The rule that answered it.")]
    words: str | None
    answered_by: str | None
    asked_at: Time
    expires_at: Time


class RunRow(TypedDict):
    run_id: str
    agent_id: str
    request_id: str
    outcome: Annotated[str, one_of(Outcome)]
    why: Annotated[str | None, Field(description="The reason of a failure, of being stuck, or of being queued again.")]
    needs_person: Annotated[bool, Field(description="It failed or is stuck, and nobody has retried or dismissed it.")]
    prompt: Annotated[str, Field(description=f"In a list, its first {PROMPT} characters.")]
    source: Annotated[str, Field(description="How it was sent: rpc, dashboard, retry, mail, …")]
    source_agent_id: Annotated[str | None, Field(description="The agent that sent it.")]
    retry_of: Annotated[str | None, Field(description="The run_id that it retries.")]
    runner: Annotated[str, Field(description="That of its agent, or the fallback that took it.")]
    queued_at: Time
    put_back: Annotated[int, Field(description="How often a fault of its provider queued it again.")]
    due_at: Annotated[Time | None, Field(description="It is not started before, after such a fault.")]
    started_at: Time | None
    ended_at: Time | None
    input_tokens: Annotated[int | None, Field(description="null: the runner did not tell.")]
    output_tokens: int | None
    cached_tokens: Annotated[int | None, Field(description="Of the input, read from the provider's cache.")]
    cost: Annotated[float | None, Field(description="Money, in `currency`; null: unknown.")]
    currency: str | None
    cost_source: Annotated[str | None, Field(description="Where the cost is from: its agent, or the price table.")]
    halted: Annotated[bool, Field(description="Whether the limit on iterations ended it.")]


class OutageRow(TypedDict):
    runner: str
    fault: Annotated[str, one_of(FaultChoices)]
    why: str
    since: Time
    until: Annotated[
        Time | None, Field(description="Then a run tries it. null: when the key or the runner changes, or on a reset.")
    ]
    failures: Annotated[int, Field(description="Tries in a row that failed.")]
    waiting: Annotated[int, Field(description="Queued runs of its agents.")]
    fallback: Annotated[str | None, Field(description="The runner that takes its runs meanwhile.")]


class MachineRow(TypedDict):
    machine: Annotated[str, Field(description="Its name; hub: the server's own worker.")]
    state: Annotated[str, one_of(MachineState)]
    draining: Annotated[bool, Field(description="It begins no run and takes no new agent.")]
    labels: list[str]
    runners: Annotated[list[str], Field(description="The names in its runners.toml.")]
    capacity: Annotated[int, Field(description="Agents that run at once.")]
    running: int
    waiting: Annotated[int, Field(description="Queued runs of its agents.")]
    agents: Annotated[int, Field(description="That live there.")]
    load: Annotated[float, Field(description="Processes that want to run, for each CPU.")]
    host: str
    pid: int
    version: Annotated[str, Field(description="Of Nexus.")]
    started_at: Time
    beat_at: Annotated[Time, Field(description="Its last sign of life.")]
    ended_at: Annotated[Time | None, Field(description="It ended, or was lost.")]


class StepRow(TypedDict):
    index: Annotated[int, Field(description="In the agent's transcript.")]
    at: Time
    role: Annotated[str, one_of(Role)]
    content: Annotated[str, Field(description=f"Its first {STEP} characters.")]
    calls: Annotated[list[str], Field(description="Names of the tools that it calls.")]


class WholeRunRow(RunRow):
    answer: str | None
    retried_by: Annotated[list[str], Field(description="The run_ids of its retries.")]
    may_have_changed_files: Annotated[bool, Field(description="It called a tool that does more than read.")]
    take_over: Annotated[str | None, Field(description="The command that continues its session in a terminal.")]
    steps: Annotated[list[StepRow], Field(description=f"At most {STEPS}.")]


class TraceRow(TypedDict):
    at: Time
    what: Annotated[str, Field(description="sent, received; request, response; or left out.")]
    about: Annotated[str, Field(description="Method and URL of a request to a provider, or the status of its answer.")]
    text: Annotated[str, Field(description="With keys redacted.")]


def agent_row(agent: Living, *, children: int) -> PoolAgentRow:
    """Return the row of a pool agent; `children` is the number of its living children."""
    return {
        "agent_id": agent.agent_id,
        "is_temp": agent.is_temporary,
        "created_at": iso(agent.created_at),
        "message_count": agent.entries_known,
        "should_shutdown": agent.should_shutdown,
        "parent_agent_id": agent.parent__agent_id,
        "child_count": children,
        "halted_at_iteration_limit": agent.halted,
        "model": agent.runner,
        "last_action_at": iso(agent.last_action_at),
        "permission_level": agent.preset,
        "cwd": agent.cwd,
        "write_paths": agent.write_paths,
    }


def message_row(entry: Entry, index: int) -> PoolMessageRow:
    """Return the row of a message in a transcript."""
    row: PoolMessageRow = {
        "index": index,
        "role": Role(entry.role).value,
        "content": entry.content,
        "tool_call_id": entry.tool_call_id,
    }
    if entry.meta is not None:
        row["meta"] = entry.meta
    return row


def question_row(question: Question) -> QuestionRow:
    """Return the row of a question as of now: after its time it counts as expired."""
    over = question.status == QuestionStatus.ASKED and question.expires_at <= now()
    return {
        "question_id": question.question_id,
        "agent_id": question.agent_id,
        "parent_agent_id": question.parent_name,
        "kind": question.kind,
        "title": question.title,
        "detail": question.detail,
        "subject": question.subject,
        "status": QuestionStatus.EXPIRED.value if over else QuestionStatus(question.status).value,
        "allowed": question.is_allowed,
        "always": question.always,
        "always_allows": question.always_allows,
        "rule": question.rule,
        "words": question.words,
        "answered_by": question.answered_by,
        "asked_at": iso(question.asked_at),
        "expires_at": iso(question.expires_at),
    }


_living = Select(lambda: PoolAgent.objects.living().order_by("pk").values_list(*Living._fields))


def agents() -> list[PoolAgentRow]:
    """Return every living agent of the pool, oldest first."""
    living = [Living._make(row) for row in _living()]
    children = Counter(agent.parent_id for agent in living)
    return [agent_row(agent, children=children[agent.pk]) for agent in living]


def turn(agent_id: str, request_id: str) -> Turn | None:
    """Return a turn of the latest agent of this name; None if there is none."""
    return _turn.first(agent_id=agent_id, request_id=request_id)


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
    """Return the condition that an agent has, or had, a session in a workspace, or works below its root; without a
    workspace, all agents. `pool_agent` and `name` lead to the agent, and to its name."""
    if workspace is None:
        return Q()
    root = workspace.root_realpath
    below = Q(**{f"{pool_agent}cwd": root}) | Q(**{f"{pool_agent}cwd__startswith": f"{root.rstrip('/')}/"})
    return below | Q(**{f"{name}agent_id__in": agents_in(workspace.pk)})


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
        found.append(_trace_row(line))
        size += len(found[-1]["text"])
    return found, None


def _trace_row(line: dict[str, Any]) -> TraceRow:
    about = " ".join(str(line[name]) for name in ("method", "url", "status") if name in line)
    return {"at": str(line.get("at")), "what": str(line.get("what")), "about": about, "text": str(line.get("text"))}


def run_row(turn: Turn, prompt: str | None = None) -> RunRow:
    """Return the row of a run; `prompt` replaces its own."""
    has_tokens = bool(turn.input_tokens or turn.output_tokens)
    return {
        "run_id": turn.pk,
        "agent_id": turn.agent.agent_id,
        "request_id": turn.request_id,
        "outcome": turn.outcome.value,
        "why": turn.why,
        "needs_person": turn.needs_person_since is not None and turn.agent.ended_at is None,
        "prompt": turn.content if prompt is None else prompt,
        "source": turn.source,
        "source_agent_id": turn.source_agent_id,
        "retry_of": turn.retry_of,
        "queued_at": iso(turn.queued_at),
        "runner": turn.runner or turn.agent.runner,
        "put_back": turn.put_back,
        "due_at": iso(turn.due_at) if turn.due_at else None,
        "started_at": iso(turn.started_at) if turn.started_at else None,
        "ended_at": iso(turn.ended_at) if turn.ended_at else None,
        "input_tokens": turn.input_tokens if has_tokens else None,
        "output_tokens": turn.output_tokens if has_tokens else None,
        "cached_tokens": turn.cached_tokens,
        "cost": None if turn.cost is None else turn.cost / MILLIONTHS,
        "currency": turn.currency,
        "cost_source": turn.cost_source,
        "halted": turn.halted,
    }


class WorkOfMachine(NamedTuple):
    """A machine and its work."""

    machine: Machine
    agents: int  # that live there
    running: list[Turn]  # the oldest, as many as a page shows
    runs: int  # that run
    waiting: int  # runs


def machines(name: str | None = None) -> list[WorkOfMachine]:
    """Return the machines by name, the hub's own first, with their agents and runs; not those that ended long ago and
    have no agents. With `name`, that one."""
    agents = Counter(PoolAgent.objects.living().values_list("machine", flat=True))
    recent = Machine.objects.exclude(ended_at__lt=now() - timedelta(days=RECENT_DAYS))
    shown = recent | Machine.objects.filter(pk__in=agents) if name is None else Machine.objects.filter(pk=name)
    running: dict[str, list[Turn]] = defaultdict(list)
    turns = Turn.objects.open().filter(status=TurnStatus.RUNNING).select_related("agent").defer("content")
    for turn in turns.order_by("started_at", "turn_id"):
        running[turn.agent.machine].append(turn)
    waiting = _waiting_by_machine()
    return [
        WorkOfMachine(each, agents[each.pk], running[each.pk][:RUNNING], len(running[each.pk]), waiting.get(each.pk, 0))
        for each in sorted(shown, key=lambda each: (each.pk != HUB, each.pk))
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


def machine_row(work: WorkOfMachine) -> MachineRow:
    """Return the row of a machine."""
    machine = work.machine
    return {
        "machine": machine.name,
        "state": machine.state.value,
        "draining": machine.draining,
        "labels": machine.labels,
        "runners": machine.runners,
        "capacity": machine.capacity,
        "running": work.runs,
        "waiting": work.waiting,
        "agents": work.agents,
        "load": machine.load,
        "host": machine.host,
        "pid": machine.pid,
        "version": machine.version,
        "started_at": iso(machine.started_at),
        "beat_at": iso(machine.beat_at),
        "ended_at": iso(machine.ended_at),
    }


def outages() -> list[OutageRow]:
    """Return the runners whose providers are out."""
    found = list(Outage.objects.order_by("since"))
    queued = Turn.objects.queued().order_by().filter(agent__runner__in=[outage.runner for outage in found])
    waiting = dict(queued.values_list("agent__runner").annotate(Count("pk")))
    return [outage_row(outage, waiting.get(outage.runner, 0)) for outage in found]


def outage_row(outage: Outage, waiting: int = 0) -> OutageRow:
    """Return the row of an outage."""
    runner = runners().by_name.get(outage.runner)
    return {
        "runner": outage.runner,
        "fault": outage.fault,
        "why": outage.why,
        "since": iso(outage.since),
        "until": iso(outage.until) if outage.until else None,
        "failures": outage.failures,
        "waiting": waiting,
        "fallback": fallback(runner) if runner else None,
    }


def retries(turn: Turn) -> list[Turn]:
    """Return the runs that retry this one, oldest first, without their texts."""
    return list(Turn.objects.filter(retry_of=turn.pk).defer("content", "answer").order_by("pk"))


def resume_command(turn: Turn) -> str | None:
    """Return the command line that continues a run's session in a person's terminal; None if there is none."""
    runner = runners().by_name.get(turn.runner or turn.agent.runner)
    if not isinstance(runner, Speaking) or not runner.take_over:
        return None
    said = Entry.objects.filter(agent=turn.agent, turn__lte=turn.pk, meta__isnull=False).order_by("-position")
    metas = said.values_list("meta", flat=True)[: transcript.PAGE]
    session = next((meta[SESSION] for meta in metas.iterator(1) if meta and SESSION in meta), None)
    if session is None:
        return None
    command = shlex.join(word.replace("{session}", session) for word in runner.take_over)
    if isinstance(runner, Ssh):
        return shlex.join(
            ["ssh", *runner.ssh_options, "-t", runner.host, f"cd {shlex.quote(turn.agent.cwd)} && {command}"]
        )
    home = processes.environment_of(turn.agent)["HOME"]
    return f"cd {shlex.quote(turn.agent.cwd)} && HOME={shlex.quote(home)} {command}"


def messages(agent: PoolAgent, offset: int, limit: int) -> tuple[int, list[Entry]]:
    """Return the number of messages in an agent's context, and a page of them; a page of long messages has fewer than
    `limit`."""
    entries = Entry.objects.in_context().filter(agent=agent)
    return entries.count(), transcript.page(entries[offset:], limit)[0]


def tokens(agent: PoolAgent) -> TokensRow:
    """Return the tokens of an agent's context."""
    taken, runner = transcript.tokens_by_role(agent), runner_of(agent)
    own, tools = fixed_tokens(runner, agent)
    system, said = own + taken.pop(Role.SYSTEM, 0), sum(taken.values())
    total = system + tools + said
    return {
        "system": system,
        "tools": tools,
        "messages": said,
        "total": total,
        "budget": runner.context_tokens,
        "available": runner.available_tokens,
        "remaining": max(runner.available_tokens - total, 0),
    }


def fixed_tokens(runner: Runner, agent: PoolAgent) -> tuple[int, int]:
    """Estimate the tokens of an agent's system prompt and of its tools' descriptions, as far as Nexus knows them: an
    agent process has others, which it does not tell."""
    if isinstance(runner, Rehearsal):
        return 0, 0
    if isinstance(runner, Speaking):
        return agent.instruction_tokens, 0
    from nexus.control.tools import catalog  # needs the extra `models`

    own = transcript.estimate(catalog.instructions(agent))
    return own + agent.instruction_tokens, catalog.tokens(agent.permissions)


def check_room(agent: PoolAgent) -> None:
    """Check that a new agent's context has room for a message. Raises VALIDATION_ERROR."""
    runner = runner_of(agent)
    taken = sum(fixed_tokens(runner, agent))
    if taken >= runner.available_tokens:
        raise invalid(
            f"No turn of it could begin: its instructions and tools take {taken} tokens, and runner {runner.name} has "
            f"{runner.available_tokens}. Raise context_tokens, or choose a preset with fewer tools.",
            field="model",
        )


def context(agent: PoolAgent) -> ContextRow:
    """Return the size of an agent's context, and how its last turn went."""
    entries = Entry.objects.in_context().filter(agent=agent)
    row: ContextRow = {
        "message_count": entries.count(),
        "system_prompt": fixed_tokens(runner_of(agent), agent)[0] > 0 or entries.filter(role=Role.SYSTEM).exists(),
        "halted_at_iteration_limit": agent.halted,
        "last_iteration_count": agent.last_iterations,
        "max_tool_iterations": runner_of(agent).max_iterations,
    }
    if agent.session is not None:
        row["session"] = session(agent)
    if agent.new_repositories is not None:
        row["new_repositories"] = agent.new_repositories
    return row


def session(agent: PoolAgent) -> SessionRow:
    """Return what an agent's process told last of its session, and what an operator chose for it."""
    told: SessionRow = {**(agent.session or {}), "chosen": agent.options}  # type: ignore[typeddict-item]
    return told


def is_nearly_full(agent: PoolAgent) -> bool:
    """Return whether an agent's context should be compacted."""
    return nearly_fill(tokens(agent))


def nearly_fill(row: TokensRow) -> bool:
    """Return whether these tokens nearly fill a context."""
    return row["total"] >= NEARLY * row["available"]


def runner_of(agent: PoolAgent) -> Runner:
    """Return the runner of an agent's turns; the figures of the default one if its runner is no longer configured."""
    known = runners()
    return known.by_name.get(agent.runner) or known.named(None)


def questions(which: str, agent_id: str | None, limit: int) -> list[Question]:
    """Return questions to the operators: `asked`, oldest first; `ended`, or those whose rules hold (`always`), newest
    first."""
    rows = Question.objects.with_parents()
    if agent_id is not None:
        rows = rows.filter(agent_id=agent_id)
    match which:
        case "asked":
            return list(rows.waiting(now()).order_by("question_id")[:limit])
        case "always":
            wrote = PermissionRule.objects.filter(pool_agent__ended_at=None).values("question")
            return list(rows.filter(pk__in=wrote).order_by("-question_id")[:limit])
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
