"""The rows of this app as every transport shows them."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, NamedTuple, NotRequired

from pydantic import Field
from typing_extensions import TypedDict

from nexus.control.agents.outages import fallback
from nexus.control.models import (
    Entry,
    FaultChoices,
    Machine,
    MachineState,
    Outage,
    Question,
    QuestionStatus,
    Role,
    RunOutcome,
    Turn,
)
from nexus.control.permissions.prices import MILLIONTHS
from nexus.control.runners_file import runners
from nexus.core.clock import iso, now
from nexus.core.operations.parameters import Time, one_of

PROMPT, STEP, STEPS = 160, 400, 500


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
    outcome: Annotated[str, one_of(RunOutcome)]
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
    until: Annotated[Time, Field(description="Then runs try it again.")]
    confirmed: Annotated[
        bool, Field(description="Whether agents of two families met it: only then do the others' runs wait.")
    ]
    failures: Annotated[int, Field(description="Times in a row that it was confirmed.")]
    waiting: Annotated[int, Field(description="Queued runs of its agents.")]
    fallback: Annotated[str | None, Field(description="The runner that takes its runs meanwhile.")]


class MachineRow(TypedDict):
    machine: Annotated[str, Field(description="Its name; hub: the server's own worker.")]
    state: Annotated[str, one_of(MachineState)]
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


def trace_row(line: dict[str, Any]) -> TraceRow:
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


def machine_row(work: WorkOfMachine) -> MachineRow:
    """Return the row of a machine."""
    machine = work.machine
    return {
        "machine": machine.name,
        "state": machine.state.value,
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


def outage_row(outage: Outage, waiting: int = 0) -> OutageRow:
    """Return the row of an outage."""
    runner = runners().by_name.get(outage.runner)
    return {
        "runner": outage.runner,
        "fault": outage.fault,
        "why": outage.why,
        "since": iso(outage.since),
        "until": iso(outage.until),
        "confirmed": outage.is_confirmed,
        "failures": outage.failures,
        "waiting": waiting,
        "fallback": fallback(runner) if runner else None,
    }
