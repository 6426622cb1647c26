"""One turn in the worker: its runner, the runner's access meanwhile, the reports of its draft to the hub, and its end.

Drafts are reported on the worker's standard output: one line of JSON for each piece. A report is a state, not a queue:
if the hub reads slowly, the next line waits and holds more. So nothing grows, and a model that answers in thousands of
pieces causes a few lines a second.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from hashlib import sha256
from importlib import import_module
from typing import Any

from django.db import DatabaseError

from nexus.control.agents import transcript, turns
from nexus.control.agents.questions import ask_and_wait
from nexus.control.agents.turns import Ended
from nexus.control.models import HUB, Entry, PoolAgent, PoolAgentQuerySet, Role, Turn, TurnStatus
from nexus.control.permissions import operator_rules
from nexus.control.permissions.members import TURN_TRANSPORT
from nexus.control.permissions.rules import Rule
from nexus.control.runners import instructions, telemetry
from nexus.control.runners.base import Draft, RunnerFailed, Scene, Takes
from nexus.control.runners.tools.files import ToolFailed, on_disk
from nexus.control.runners_file import Runner, runners
from nexus.control.worker import clones
from nexus.control.worker.store_access import stored
from nexus.core.clock import now
from nexus.core.database.store import write
from nexus.core.operations import dispatch as operations
from nexus.core.operations.caller import Caller
from nexus.core.operations.errors import NexusError
from nexus.core.operations.registry import TOOLSETS
from nexus.core.operations.replies import Outcome
from nexus.core.waiting import READERS, WRITERS, in_thread

PAUSE_SECONDS = 0.1  # between two lines about an agent
LONGEST_PIECE = 16_384  # characters of a line
MOST_BEHIND = 256 * 1024  # bytes that wait for the hub to read them
Report = Callable[[dict[str, Any]], bool]  # returns False if the report has to wait


def to_nobody(message: dict[str, Any]) -> bool:
    """Drop the report: no hub listens."""
    return True


async def to_hub() -> Report:
    """Return the function that reports to the hub. Everything else that is printed goes to standard error from now
    on."""
    line = os.fdopen(os.dup(1), "wb", 0)  # not inherited by children
    os.dup2(2, 1)
    transport, _ = await asyncio.get_running_loop().connect_write_pipe(asyncio.Protocol, line)

    def report(message: dict[str, Any]) -> bool:
        if "text" in message and transport.get_write_buffer_size() > MOST_BEHIND:
            return False
        transport.write(json.dumps(message).encode() + b"\n")
        return True

    return report


class DraftReporter:
    """Reports the draft of one turn."""

    def __init__(self, turn: Turn, report: Report) -> None:
        self.turn, self.report = turn, report
        self.draft = Draft()
        self._position: int | None = None  # of the entry that is being written
        self._last: tuple[int, int] | None = None  # the draft, and its position, that was last reported
        self._reported = 0  # its reported characters
        self._tokens = (0, 0)

    def stored(self, entry: Entry) -> None:
        """Note that an entry was stored: the draft now belongs to the one after it."""
        self._position = entry.position + 1
        if entry.role == Role.ASSISTANT and entry.content:
            self.draft.restart()
        self.draft.changed.set()

    async def work(self) -> None:
        """Report changes until cancelled."""
        try:
            while True:
                await self.draft.changed.wait()
                self.draft.changed.clear()
                if not await self._is_placed() or not self._catch_up():
                    self.draft.changed.set()
                await asyncio.sleep(PAUSE_SECONDS)
        finally:
            self.report({"agent": self.turn.agent_id})

    async def _is_placed(self) -> bool:
        """Return whether the position of the entry being written is known: from the store at first, then from stored
        entries."""
        if self._position is None:
            try:
                made = await in_thread(READERS, partial(transcript.entries_made, self.turn.agent))
            except DatabaseError:
                return False
            self._position = max(made, self._position or 0)  # an entry may have been stored meanwhile
        return True

    def _catch_up(self) -> bool:
        """Report what is new; False if the hub has to read first."""
        assert self._position is not None
        text, tokens = self.draft.text, (self.draft.input_tokens, self.draft.output_tokens)
        which = (self.draft.begun, self._position)
        if which != self._last:
            self._reported = 0
        elif self._reported == len(text) and tokens == self._tokens:
            return True
        while True:
            piece = text[self._reported : self._reported + LONGEST_PIECE]
            is_sent = self.report(
                {
                    "agent": self.turn.agent_id,
                    "request_id": self.turn.request_id,
                    "position": self._position,
                    "offset": self._reported,
                    "text": piece,
                    "tokens": tokens,
                }
            )
            if not is_sent:
                return False
            self._last, self._tokens = which, tokens
            self._reported += len(piece)
            if self._reported == len(text):
                return True


log = logging.getLogger(__name__)

LOOK_SECONDS = 5.0  # between two looks whether a turn is stuck, at most
LET_GO_SECONDS = 0.1  # time for a cancelled runner to report its end
SAY_SECONDS = 60.0  # retries of an entry that cannot be stored; then the turn fails
STUBBORN_SECONDS = 60.0  # retries of cancelling a runner; then its agent may start other turns


class LoopDetector:
    """Finds the same tool call with the same result, so many times among the last results."""

    def __init__(self, times: int) -> None:
        self.times = times
        self._called: dict[str, str] = {}  # by the call's id
        self._results: deque[str] = deque(maxlen=2 * times)
        self._found: set[str] = set()  # each is found once

    def look(self, role: Role, content: str, tool_call_id: str | None, meta: Mapping[str, Any] | None) -> str:
        """Return the name of the call that an entry repeats once too often; else nothing."""
        for call in transcript.tool_calls(meta):
            made = json.dumps([call["name"], call["arguments"]], sort_keys=True, default=str)
            self._called[call["id"]] = f"{call['name']}\0{sha256(made.encode()).hexdigest()}"
        if role != Role.TOOL or (called := self._called.pop(tool_call_id or "", None)) is None:
            return ""
        key = f"{called}\0{sha256(content.encode()).hexdigest()}"
        self._results.append(key)
        if key in self._found or self._results.count(key) < self.times:
            return ""
        self._found.add(key)
        return called.partition("\0")[0]


class RunningTurn:
    """A running turn."""

    def __init__(self, turn: Turn, report: Report = to_nobody, *, sent_by: str | None = None) -> None:
        """Call it on a thread: the runner is read from its file, the agents above from the store. `sent_by`
        is the family that sent the turn, None stands for operators."""
        self.turn, self.sent_by = turn, sent_by
        _ = turn.agent.owner  # reads the agents above, which the event loop must not do
        self._runner = _runner(turn.runner or turn.agent.runner)
        self._reporter = DraftReporter(turn, report)
        self._running: asyncio.Task[Ended] | None = None
        self._reporting: asyncio.Task[None] | None = None
        self._asked = asyncio.Event()
        self._entries = 0
        self._over = False  # whatever its runner still does is ignored

    def cancel(self) -> None:
        """End the turn, even if its runner does not cooperate."""
        self._asked.set()

    async def run(self) -> Ended:
        """Run the turn and return its end, with its tokens and its cost; soon after `cancel`, even if the runner goes
        on."""
        runner = self._runner
        with telemetry.run_span(self.turn) as record:
            ended = _failed(runner) if isinstance(runner, NexusError) else await self._ended(runner)
            record(ended)
        return ended

    async def _ended(self, runner: Runner) -> Ended:
        self._loops = LoopDetector(runner.stuck_calls)
        asked = asyncio.create_task(self._asked.wait())
        self._running = asyncio.create_task(self._run(runner))
        self._reporting = asyncio.create_task(self._reporter.work())
        watching = asyncio.create_task(self._watch(runner.stuck_seconds))
        try:
            await asyncio.wait((self._running, asked), timeout=runner.turn_seconds, return_when=asyncio.FIRST_COMPLETED)
            if not self._running.done():
                self._running.cancel()
                await asyncio.wait((self._running,), timeout=LET_GO_SECONDS)
        finally:
            asked.cancel()
            watching.cancel()
            self._over = True
        if self._running.done() and not self._running.cancelled():
            return self._running.result()
        if self._asked.is_set():
            return self._cut_off(Ended(TurnStatus.CANCELLED))
        return self._cut_off(Ended(TurnStatus.FAILED, why="it took longer than the runner's turn_seconds"))

    def _cut_off(self, ended: Ended) -> Ended:
        """Return an end that the runner did not report, with the tokens that it had reported."""
        draft = self._reporter.draft
        return replace(
            ended,
            input_tokens=draft.input_tokens,
            output_tokens=draft.output_tokens,
            cached_tokens=draft.cached_tokens,
            cost=draft.cost,
        )

    async def gone(self) -> None:
        """Return once the runner has stopped, or never will. Called when the end is stored."""
        if self._reporting is not None:
            self._reporting.cancel()  # only now, because a turn's last entry replaces its draft
        loop = asyncio.get_running_loop()
        deadline = loop.time() + STUBBORN_SECONDS
        while self._running is not None and not self._running.done() and loop.time() < deadline:
            self._running.cancel()
            await asyncio.wait((self._running,), timeout=LET_GO_SECONDS)
        if self._running is not None and not self._running.done():
            log.error(
                "The runner %r did not stop after its turn was ended; check what it does.", self.turn.agent.runner
            )

    async def _run(self, runner: Runner) -> Ended:
        try:
            _check_host(self.turn.agent)
            await self._clone_directory()
            await self._check_directory()
            take: Takes = (await _module(runner.kind)).take
            ended = await take(
                runner,
                Scene(
                    self.turn.agent,
                    self.turn,
                    self._history,
                    self._say,
                    partial(ask_and_wait, self.turn),
                    self._call,
                    self._reporter.draft,
                    self._instructions,
                    self._tell_session,
                    self._rules,
                ),
            )
        except Exception as error:
            return self._cut_off(_failed(error))
        if ended.status == TurnStatus.DONE and not self._asked.is_set():
            try:
                await self._check_directory()
            except RunnerFailed as gone:  # and with it all changes in it
                return replace(ended, status=TurnStatus.FAILED, why=str(gone))
        return ended

    async def _clone_directory(self) -> None:
        """Clone the agent's directory, if it is not there, nothing was done in it yet, and runners.toml says of what.
        Raises RunnerFailed."""
        agent = self.turn.agent
        clone = (await in_thread(READERS, runners)).clone_of(agent.cwd)
        try:
            if clone is None or await on_disk(agent, partial(os.path.lexists, agent.cwd)):
                return
        except ToolFailed:  # the mount does not answer
            return
        made = Entry.objects.filter(agent=agent, role__in=(Role.ASSISTANT, Role.TOOL))
        if await in_thread(READERS, made.exists):
            return
        self._reporter.draft.add(f"Cloning {clone.git} to {agent.cwd}")
        try:
            await clones.ensure(clone, agent)
        finally:
            self._reporter.draft.restart()

    async def _check_directory(self) -> None:
        """Check that the agent's directory exists, which its runner might not notice. Raises RunnerFailed."""
        cwd, machine = self.turn.agent.cwd, self.turn.agent.machine
        try:
            exists = await on_disk(self.turn.agent, partial(os.path.isdir, cwd))
        except ToolFailed:  # the mount does not answer
            exists = False
        if not exists:
            where = "there any more" if machine == HUB else f"on this machine, {machine}"
            raise RunnerFailed(f"the agent's directory, {cwd}, is not {where}")
        if machine != HUB:
            await on_disk(self.turn.agent, partial(_check_real, (cwd, *self.turn.agent.write_paths)))

    async def _instructions(self) -> str:
        """Return the instructions of files, and store what they take of the context. Raises RunnerFailed."""
        agent = self.turn.agent
        try:
            text = await on_disk(agent, partial(instructions.read_instructions, agent.cwd))
        except ToolFailed as failed:
            raise RunnerFailed(f"its instructions could not be read: {failed}") from None
        tokens = transcript.estimate(text)
        if tokens != agent.instruction_tokens:
            rows = self._agents_row()
            await stored(lambda: rows.update(instruction_tokens=tokens), SAY_SECONDS, twice=True)
        return text

    async def _tell_session(self, session: Mapping[str, Any]) -> None:
        if session != self.turn.agent.session:
            rows = self._agents_row()
            await stored(lambda: rows.update(session=dict(session)), SAY_SECONDS, twice=True)

    def _agents_row(self) -> PoolAgentQuerySet:
        """Return the row of the agent; none if another worker runs the turn, or nobody."""
        running = Turn.objects.filter(pk=self.turn.pk, status=TurnStatus.RUNNING, epoch=self.turn.epoch)
        return PoolAgent.objects.filter(pk__in=running.values("agent"))

    async def _history(self) -> AsyncIterator[Entry]:
        agent = self.turn.agent
        position = agent.entries_made  # when the turn began
        while page := await in_thread(READERS, partial(transcript.before, agent, position)):
            for entry in page:
                yield entry
            position = page[-1].position

    async def _say(
        self, role: Role, content: str, *, tool_call_id: str | None = None, meta: Mapping[str, Any] | None = None
    ) -> None:
        def append() -> Entry:
            with write(self.turn.agent.pk, self.turn.agent.agent_id):
                turn = None if self._over else turns.running(self.turn)
                if turn is None:
                    raise RunnerFailed("the turn has ended")
                return transcript.append(
                    turn.agent,
                    turn,
                    role,
                    content,
                    moment=now(),
                    tool_call_id=tool_call_id,
                    meta=meta,
                    announce=True,
                )

        self._reporter.stored(await stored(append, SAY_SECONDS))
        self._entries += 1
        if looping := self._loops.look(role, content, tool_call_id, meta):
            why = f"it made the same call {self._loops.times} times, with the same result: {looping}"
            await self._record(partial(turns.report_stuck, self.turn, why))

    async def _watch(self, seconds: int) -> None:
        """Report the turn as stuck when nothing has come for so long, and that it goes on after that."""
        loop = asyncio.get_running_loop()
        seen, since, reported = self._signs(), loop.time(), ""
        while True:
            await asyncio.sleep(min(seconds / 10, LOOK_SECONDS))
            if (signs := self._signs()) != seen:
                seen, since = signs, loop.time()
                if reported and await self._record(partial(turns.goes_on, self.turn, reported)):
                    reported = ""
            elif not reported and loop.time() - since >= seconds:
                with suppress(DatabaseError):
                    why = await in_thread(READERS, partial(turns.why_silent, self.turn, seconds))
                    if await self._record(partial(turns.report_stuck, self.turn, why)):
                        reported = why

    def _signs(self) -> tuple[int, int]:
        return self._reporter.draft.signs, self._entries

    async def _record(self, record: Callable[[], None]) -> bool:
        """Record something about the turn; False if the store is away, for which no turn fails."""
        try:
            await in_thread(WRITERS, record)
        except (DatabaseError, NexusError) as error:
            log.warning("That a turn is stuck, or goes on, could not be stored (%s).", error)
            return False
        return True

    async def _rules(self) -> Sequence[Rule]:
        agent = self.turn.agent
        return await stored(
            partial(operator_rules.holding, agent.agent_id, agent), SAY_SECONDS, twice=True, pool=READERS
        )

    async def _call(self, toolset: str, name: str, arguments: Mapping[str, Any]) -> Outcome:
        """Call an operation as the agent, with the rights of its identity, like a caller with its key."""
        agent = self.turn.agent
        if self._over or await in_thread(READERS, partial(turns.running, self.turn)) is None:
            raise RunnerFailed("the turn has ended")
        caller = Caller(TURN_TRANSPORT, agent_id=agent.agent_id, connection=f"{TURN_TRANSPORT}:{agent.pk}")
        return await operations.aperform(TOOLSETS[toolset], caller, name, arguments)


def _check_host(agent: PoolAgent) -> None:
    """Check that the agent's directory is not on a host that only ssh reached. Raises RunnerFailed."""
    if agent.host is not None:
        raise RunnerFailed(
            f"the agent's directory is on {agent.host}, and no runner starts programs by ssh any more: start "
            "`nexus run-pool` there, and create the agent again, with a runner that has a label of that machine"
        )


def _check_real(paths: Sequence[str]) -> None:
    """Check that no path leads through a symlink: another machine created the agent, and could not see that. Raises
    RunnerFailed."""
    for path in paths:
        if (real := os.path.realpath(path)) != path:
            raise RunnerFailed(f"on this machine {path} is {real}: create the agent with that path")


_modules: dict[str, Any] = {}  # of the kinds that are imported already


async def _module(kind: str) -> Any:
    """Return the module of a kind of runner. Its libraries take seconds to import; other turns go on meanwhile."""
    if kind not in _modules:
        _modules[kind] = await asyncio.to_thread(import_module, f"nexus.control.runners.{kind}")
    return _modules[kind]


def _runner(runner: str) -> Runner | NexusError:
    try:
        return runners().named(runner)
    except NexusError as error:
        return error


def _failed(error: Exception) -> Ended:
    if isinstance(error, RunnerFailed):
        return Ended(TurnStatus.FAILED, why=str(error), fault=error.fault, has_written=error.has_written)
    if isinstance(error, NexusError):
        return Ended(TurnStatus.FAILED, why=str(error))
    log.exception("a turn failed unexpectedly", exc_info=error)
    return Ended(TurnStatus.FAILED, why=f"an unexpected {type(error).__name__}; the server's log has more")
