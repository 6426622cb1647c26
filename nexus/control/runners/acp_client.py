"""Requests of an agent process, answered under its permissions, its terminals, and its updates, stored in the
transcript.

A terminal is a command that the agent started, with a limited part of its output.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import shlex
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

from acp import RequestError
from acp.schema import (
    AcceptElicitationResponse,
    AgentMessageChunk,
    AgentPlanUpdate,
    AllowedOutcome,
    AvailableCommandsUpdate,
    ConfigOptionUpdate,
    Cost,
    CreateTerminalResponse,
    CurrentModeUpdate,
    DeclineElicitationResponse,
    DeniedOutcome,
    EnvVariable,
    PermissionOption,
    ReadTextFileResponse,
    RequestPermissionResponse,
    SessionModeState,
    TerminalExitStatus,
    TerminalOutputResponse,
    ToolCallProgress,
    ToolCallStart,
    ToolCallUpdate,
    Usage,
    UsageUpdate,
    WaitForTerminalExitResponse,
    WriteTextFileResponse,
)

from nexus.control.agents.turns import Closing
from nexus.control.models import PoolAgent, Role
from nexus.control.permissions import prices, rules
from nexus.control.permissions.prices import CURRENCY, MILLIONTHS, MOST
from nexus.control.permissions.rules import Action, Kind, Verdict
from nexus.control.runners import acp_elicitation, acp_session, processes, sandbox
from nexus.control.runners.acp_calls import UNKNOWN_KIND, USES, KnownCall, is_of_the_bus, judge, result_of
from nexus.control.runners.base import RunnerFailed, Scene, in_share
from nexus.control.runners.programs import with_environment
from nexus.control.runners.tools import files
from nexus.control.runners.tools.files import NotThere, ToolFailed, ToolRefused, check_tool, on_disk, readable

T = TypeVar("T")

LONGEST_TEXT = 1_000_000  # characters of an entry; a longer text is cut
LONGEST_PATH = 4_096
MOST_LOST = 20
MOST_ENTRIES = 1_000  # of a turn, beside those of its calls
ENTRIES_A_CALL = 10
LONGEST_DETAIL = 20_000  # of a call's arguments, and of a question's text
NOT_TOLD = "(the agent did not tell what came of it)"
REFUSED = -32_003  # JSON-RPC: what the agent's permissions do not allow
FAILED = -32_603
NOT_FOUND = -32_002  # the protocol's own code; agents then treat the file as new
MODE_NOTICE = re.compile(r"\[MODE_UPDATE\] (\w+)")  # Gemini's words for a change of its mode
READS_MISSING_AS_EMPTY = frozenset({"gemini-cli"})  # it reads a file before it writes, and cannot handle NOT_FOUND
HARMLESS = frozenset({"CLAUDECODE"})  # claude-code-acp sets it for each command, and no program runs what it says


ACCEPTED, DECLINED = AcceptElicitationResponse(action="accept"), DeclineElicitationResponse(action="decline")


class PoolClient:
    """The client side of one turn: it answers requests under the agent's permissions and writes the transcript."""

    def __init__(self, scene: Scene, terminals: Terminals, most_calls: int) -> None:
        self.scene, self.terminals, self.most_calls = scene, terminals, most_calls
        self.permissions, self.secrets = scene.agent.permissions, scene.draft.secrets
        self.granted: tuple[str, ...] = ()  # paths that an operator allowed to write in this turn
        self.ruled: set[str] = set()  # paths that a rule allowed to write, if it still does
        self.allowed: set[Action] = set()  # other actions that an operator allowed in this turn
        self.answer = ""  # its last text
        self.calls: dict[str, KnownCall] = {}  # by the agent's id
        self.halted = asyncio.Event()  # set when it has made too many calls, or said too much
        self.overdone = ""  # why it is stopped
        self.is_listening = True  # False while a loaded session repeats its history
        self.is_prompted = False
        self.cost_before = 0.0  # of its session, before the prompt
        self.meta: dict[str, Any] = {}  # of its entries
        self.session: dict[str, Any] = {}  # what it told of its session
        self.modes: SessionModeState | None = None
        self.models: acp_session.SessionModels | None = None
        self.is_confined = False
        self.program = ""  # its own name
        self.has_written = False  # through us: a file, or by a command
        self._stored = 0  # entries
        self._said: list[str] = []
        self._length = 0
        self._message: str | None = None  # the agent's id of the message that it is writing
        self._plan: list[dict[str, str]] = []
        self._counted = Usage(input_tokens=0, output_tokens=0, total_tokens=0)  # with its model's answers
        self._storing = asyncio.Lock()  # entries are stored in order of arrival

    async def settled(self) -> None:
        """Return when all updates received so far are in the transcript."""
        await asyncio.sleep(0)  # let pending updates start
        async with self._storing:
            pass

    async def close(self) -> Closing | None:
        """Do what `finish` does, but return the agent's last words, so that they are stored with the turn's end. None
        if they are not the last entry."""
        async with self._storing:
            if any(not call.is_answered for call in self.calls.values()):
                await self._finish()
            said = self._said_last()
            return None if said is None else Closing(said, self.meta)

    async def finish(self) -> None:
        """Store what is pending at the end of the turn; calls without a result are marked as such."""
        async with self._storing:
            await self._finish()

    async def _finish(self) -> None:
        await self._begin_all()
        await self._flush()
        for call in self.calls.values():
            if not call.is_answered:
                await self._answer(call, "", NOT_TOLD)

    # Updates from the agent.

    async def session_update(self, session_id: str, update: Any, **_: Any) -> None:
        self._describe(update)
        self.scene.draft.signs += 1
        if not self.is_listening or self.overdone:
            return
        async with self._storing:
            if isinstance(update, AgentMessageChunk):
                self._count(acp_session.tokens_in(update.field_meta))
                await self._chunk(update)
            elif isinstance(update, ToolCallStart | ToolCallProgress):
                await self._tool_call(update)
            elif isinstance(update, AgentPlanUpdate):
                await self._planned(update)
        most = MOST_ENTRIES + ENTRIES_A_CALL * self.most_calls
        if self._stored > most:
            self.overdone = f"it said over {most} things in one turn"
            self.halted.set()

    async def _say(self, role: Role, content: str, **more: Any) -> None:
        self._stored += 1
        await self.scene.say(role, content, **more)

    def _describe(self, update: Any) -> None:
        """Note what an update tells of the session."""
        match update:
            case UsageUpdate():
                self.session["context"] = {"used": update.used, "size": update.size}
                self._costs(update.cost)
            case CurrentModeUpdate():
                self._note_mode(update.current_mode_id)
            case ConfigOptionUpdate():
                self.session["options"] = acp_session.config_options(update.config_options, self.modes, self.models)
            case AvailableCommandsUpdate():
                self.session["commands"] = acp_session.commands(update.available_commands)

    def _note_mode(self, mode: str) -> None:
        if self.modes is not None:
            self.modes.current_mode_id = mode
        for option in self.session.get("options", []):
            if option["id"] == acp_session.MODE:
                option["value"] = mode

    async def tell_session(self) -> None:
        """Have what was told of the session kept."""
        if self.session:
            await self.scene.tell_session(
                storable_json(self.secrets.struck_of(acp_session.bounded(self.session)), None)
            )

    def _costs(self, cost: Cost | None) -> None:
        """Note the session's cost, which grows over all its prompts. An agent may also begin at 0 when it loads one."""
        if cost is None or not 0 <= cost.amount <= MOST / MILLIONTHS or not re.fullmatch(CURRENCY, cost.currency):
            return
        if not self.is_prompted:
            self.cost_before = cost.amount
            return
        of_turn = cost.amount - self.cost_before if cost.amount >= self.cost_before else cost.amount
        self.scene.draft.cost = prices.Cost(round(of_turn * MILLIONTHS), cost.currency, "its agent")

    def used(self, usage: Usage) -> None:
        """Note the tokens of the turn. Agents of some providers do not count cached tokens as input: then the total is
        larger than the sum of input and output."""
        read, written = usage.cached_read_tokens or 0, usage.cached_write_tokens or 0
        apart = usage.total_tokens >= usage.input_tokens + usage.output_tokens + read + written
        total = usage.input_tokens + (read + written if apart else 0)
        self.scene.draft.used(total, usage.output_tokens, usage.cached_read_tokens)

    def _count(self, usage: Usage | None) -> None:
        """Add the tokens of one answer of the agent's model."""
        if usage is not None and self.is_prompted:
            before = self._counted
            read = (before.cached_read_tokens or 0) + (usage.cached_read_tokens or 0)
            self._counted = Usage(
                input_tokens=before.input_tokens + usage.input_tokens,
                output_tokens=before.output_tokens + usage.output_tokens,
                total_tokens=before.total_tokens + usage.total_tokens,
                cached_read_tokens=read,
            )
            self.used(self._counted)

    async def _chunk(self, chunk: AgentMessageChunk) -> None:
        text = getattr(chunk.content, "text", None)
        text = f"[{chunk.content.type}]" if text is None else text
        if not text:
            return
        if notice := MODE_NOTICE.fullmatch(text):
            self._note_mode(notice[1])
            return
        await self._begin_all()
        if chunk.message_id != self._message:
            await self._flush()
            self._message = chunk.message_id
        self._append(text)

    def _append(self, text: str) -> None:
        kept = text[: max(LONGEST_TEXT - self._length, 0)]
        self._said.append(kept)
        self._length += len(kept)
        self.scene.draft.add(storable(kept))

    async def _flush(self) -> None:
        if (text := self._said_last()) is not None:
            await self._say(Role.ASSISTANT, text, meta=self.meta)

    def _said_last(self) -> str | None:
        """Return the text since the last entry, as the content of the next one; None if there is none."""
        text = storable("".join(self._said))
        if self._length == LONGEST_TEXT:  # the cut may have split a secret
            text = text[: self.secrets.settled(text)]
        self._said, self._length = [], 0
        if not text.strip():
            return None
        self.answer = text
        return text

    async def _tool_call(self, update: ToolCallStart | ToolCallProgress) -> None:
        call = self._call_of(update)
        call.merge(update)
        if not call.is_ready:
            return  # its arguments will follow
        await self._begin(call)
        if update.status in ("completed", "failed") and not call.is_answered:
            await self._answer(call, update.status, result_of(call, update))

    def _call_of(self, update: ToolCallStart | ToolCallProgress | ToolCallUpdate) -> KnownCall:
        """Return the call that an update belongs to; create it if it is new."""
        call = self.calls.get(update.tool_call_id)
        if call is None:
            call_id = f"{self.scene.turn.pk}-{len(self.calls)}"
            call = self.calls[update.tool_call_id] = KnownCall(
                call_id, ToolCallUpdate(tool_call_id=update.tool_call_id)
            )
            if len(self.calls) > self.most_calls:
                self.halted.set()
        return call

    async def _begin_all(self) -> None:
        """Write the entries of all reported calls, before an entry that follows them."""
        for call in self.calls.values():
            await self._begin(call)

    async def _begin(self, call: KnownCall) -> None:
        if call.said is None:
            await self._flush()
            call.said = self._stored_form(call)
            await self._say(Role.ASSISTANT, "", meta={"tool_calls": [call.said], **self.meta})

    async def _answer(self, call: KnownCall, status: str, result: str) -> None:
        """Write a call's result; with the call itself if it has changed since its entry was written."""
        call.is_answered = True
        meta: dict[str, Any] = {"status": status} if status else {}
        if call.refused:
            meta["refused"] = call.refused
        if call.by_rule:
            meta["by_rule"] = call.by_rule
        if lost := self._what_is_lost(call, status):
            meta["lost"] = lost
        if (shown := self._stored_form(call)) != call.said:
            meta["call"] = shown
        text = storable(self.secrets.cut(result, LONGEST_TEXT))
        await self._say(Role.TOOL, text, tool_call_id=call.id, meta={**meta, **self.meta})

    def _what_is_lost(self, call: KnownCall, status: str) -> str:
        """Return what is gone of a call, in words: what its process wrote in memory that only its sandbox has."""
        if not self.is_confined or status != "completed" or USES.get(call.known.kind or "") not in rules.WRITING:
            return ""
        named = dict.fromkeys([*call.paths(), *(str(diff["path"]) for diff in call.diffs())])
        kept = (self.permissions.cwd, *self.granted)
        lost = [path for path in named if rules.within(path, sandbox.PRIVATE) and not rules.within(path, kept)]
        if not lost:
            return ""
        self.session["lost"] = [*self.session.get("lost", []), *lost][:MOST_LOST]
        return storable(self.secrets.cut(acp_session.loss(lost, self.permissions.write_paths), LONGEST_DETAIL))

    def _stored_form(self, call: KnownCall) -> dict[str, Any]:
        """Return a call in the form that the transcript keeps."""
        known = call.known
        shown: dict[str, Any] = {
            "id": call.id,
            "name": storable(self.secrets.cut(known.title or known.kind or "tool", 1_000)),
            "kind": known.kind or UNKNOWN_KIND,
            "arguments": storable_json(self.secrets.struck_of(call.arguments())),
        }
        if paths := call.paths():
            shown["locations"] = [storable(self.secrets.cut(path, LONGEST_PATH)) for path in paths]
        if diffs := call.diffs():
            shown["diffs"] = [
                {name: text and storable(self.secrets.cut(text, LONGEST_DETAIL)) for name, text in diff.items()}
                for diff in diffs
            ]
        return shown

    async def _planned(self, update: AgentPlanUpdate) -> None:
        plan = [
            {
                "content": storable(self.secrets.cut(entry.content, LONGEST_DETAIL)),
                "status": entry.status,
                "priority": entry.priority,
            }
            for entry in update.entries[:100]
        ]
        if plan != self._plan:
            self._plan = plan
            await self._flush()
            await self._say(Role.ASSISTANT, "", meta={"plan": plan, **self.meta})

    # Requests from the agent.

    async def request_permission(
        self, session_id: str, tool_call: ToolCallUpdate, options: list[PermissionOption], **_: Any
    ) -> RequestPermissionResponse:
        async with self._storing:
            call = self._call_of(tool_call)
            known, asked = call.known, call.ask(tool_call)
            await self._begin(call)
        judged = await _done(
            on_disk(self.scene.agent, partial(judge, self.permissions, known if is_of_the_bus(known) else asked))
        )
        allowed, why_not, call.by_rule = await self._decided(
            judged.action,
            judged.verdict,
            asked.title or asked.kind or "a tool",
            _for_operator(asked, judged.action.paths),
            judged.why_not,
        )
        call.refused = "" if allowed else storable(self.secrets.cut(why_not, LONGEST_DETAIL))
        wanted = ("allow_once", "allow_always") if allowed else ("reject_once", "reject_always")
        chosen = next((option for kind in wanted for option in options if option.kind == kind), None)
        if chosen is None:
            return RequestPermissionResponse(outcome=DeniedOutcome(outcome="cancelled"))
        return RequestPermissionResponse(outcome=AllowedOutcome(outcome="selected", option_id=chosen.option_id))

    async def _decided(
        self, action: Action, ceiling: Verdict, title: str, detail: str, why_not: str = ""
    ) -> tuple[bool, str, str]:
        """Return whether the rules, the ceiling or an operator allow an action, why not, and the rule that decided, in
        words. What an operator allowed is not asked again in this turn because of a rule."""
        ruling = await self.scene.decide(action, ceiling)
        by_rule = storable(self.secrets.cut(str(ruling), LONGEST_DETAIL))
        if ruling.verdict is not Verdict.ASKED:
            allowed = ruling.verdict is Verdict.ALLOWED
            if allowed and action.kind is Kind.WRITE:
                self.ruled.update(action.paths)
            return allowed, f"It was {ruling}." if ruling.rule else why_not, by_rule
        if ruling.rule is not None and self._is_granted(action):
            return True, "", by_rule
        title = storable(self.secrets.cut(title, 500))
        detail = storable(self.secrets.cut("\n".join(filter(None, [by_rule, detail])), LONGEST_DETAIL))
        action = action.mapped(storable)
        decision = await self.scene.ask("permission", title, detail, subject=str(action), action=action)
        if decision.allowed:
            self._grant(action)
        return decision.allowed, decision.words or "An operator refused.", by_rule

    def _grant(self, action: Action) -> None:
        if action.kind is Kind.WRITE:
            self.granted = (*self.granted, *action.paths)
        elif action.kind in (Kind.RUN, Kind.READ):
            self.allowed.add(action)

    def _is_granted(self, action: Action) -> bool:
        if action.kind is Kind.WRITE:
            return set(action.paths) <= set(self.granted)
        return any(
            (action.kind, action.text, action.paths) == (each.kind, each.text, each.paths) for each in self.allowed
        )

    async def _check(self, action: Action, title: str) -> None:
        """Check an action that the ceiling allows. Raises ToolRefused."""
        allowed, why_not, _ = await self._decided(action, Verdict.ALLOWED, title, "")
        if not allowed:
            raise ToolRefused("rule", why_not)

    async def create_elicitation(
        self, message: str, mode: Any, **_: Any
    ) -> AcceptElicitationResponse | DeclineElicitationResponse:
        """Ask the operators to fill in a form or to visit a page. An answer that does not fit is asked for again."""
        title = storable(self.secrets.cut(message, LONGEST_DETAIL))
        schema = getattr(mode, "requested_schema", None)
        if schema is None:
            url = storable(self.secrets.cut(str(mode.url), LONGEST_PATH))
            decision = await self.scene.ask("permission", title, f"Visit {url}, then allow.", subject=f"visit {url}")
            return ACCEPTED if decision.allowed else DECLINED
        wrong = ""
        while len(schema.properties or {}) <= acp_elicitation.MOST:
            asked = storable(self.secrets.cut(acp_elicitation.as_question(schema), LONGEST_DETAIL))
            decision = await self.scene.ask("question", title, "\n\n".join(filter(None, (wrong, asked))), subject="")
            if not decision.allowed:
                break
            try:
                content = acp_elicitation.values_in(schema, decision.words or "")
            except acp_elicitation.NoAnswer as error:
                wrong = f"The last answer did not fit: {storable(str(error))}."
            else:
                return AcceptElicitationResponse(action="accept", content=content)
        return DECLINED

    async def read_text_file(
        self, session_id: str, path: str, line: int | None = None, limit: int | None = None, **_: Any
    ) -> ReadTextFileResponse:
        async def text() -> str:
            real = await on_disk(self.scene.agent, partial(readable, self.permissions, path))
            await self._check(self._file(Kind.READ, path, real), f"Read {path}")
            try:
                return await on_disk(
                    self.scene.agent,
                    partial(files.read_text, self.permissions, real, line=1 if line is None else line, limit=limit),
                )
            except NotThere:
                if self.program in READS_MISSING_AS_EMPTY:
                    return ""
                raise RequestError(NOT_FOUND, f"Resource not found: {path}", {"uri": path}) from None

        return ReadTextFileResponse(content=await _done(text()))

    async def write_text_file(self, session_id: str, path: str, content: str, **_: Any) -> WriteTextFileResponse:
        self.has_written = True

        async def written() -> None:
            action = self._file(
                Kind.WRITE, path, await on_disk(self.scene.agent, partial(files.resolved, self.permissions, path))
            )
            granted = list(self.granted)
            if self.ruled.issuperset(action.paths):
                ruling = await self.scene.decide(action, Verdict.ASKED)
                granted += action.paths if ruling.verdict is Verdict.ALLOWED else ()
            permissions = replace(self.permissions, write_paths=(*self.permissions.write_paths, *granted))
            real = await on_disk(self.scene.agent, partial(files.writable, permissions, action.paths[0]))
            await self._check(action, f"Write {path}")
            await on_disk(self.scene.agent, partial(files.write_text, permissions, real, content))

        await _done(written())
        return WriteTextFileResponse()

    def _file(self, kind: Kind, path: str, real: str) -> Action:
        """Return the action of reading or writing one file."""
        cwd = self.permissions.cwd
        return Action(kind, paths=(real,), named=(os.path.normpath(os.path.join(cwd, path)),), cwd=cwd)

    async def create_terminal(
        self,
        session_id: str,
        command: str,
        args: list[str] | None = None,
        env: list[EnvVariable] | None = None,
        cwd: str | None = None,
        output_byte_limit: int | None = None,
        **_: Any,
    ) -> CreateTerminalResponse:
        async def started() -> str:
            check_tool(self.permissions, "run")
            self.has_written = True
            at = await on_disk(self.scene.agent, partial(readable, self.permissions, cwd or self.permissions.cwd))
            variables = {variable.name: variable.value for variable in env or []}
            is_line = not args and len(command.split()) > 1  # claude-code-acp sends a shell command line
            words = ["/bin/sh", "-c", command] if is_line else [command, *(args or [])]
            own = [] if at == self.permissions.cwd else [f"--chdir={at}"]  # both are real paths
            own += [f"{name}={value}" for name, value in variables.items() if name not in HARMLESS]
            line = shlex.join(["env", *own, *words]) if own else command if is_line else shlex.join(words)
            await self._check(Action(Kind.RUN, line, cwd=self.permissions.cwd), f"Run {line}")
            return await self.terminals.create(words, at, variables, output_byte_limit)

        return CreateTerminalResponse(terminal_id=await _done(started()))

    async def terminal_output(self, session_id: str, terminal_id: str, **_: Any) -> TerminalOutputResponse:
        terminal = self.terminals.get(terminal_id)
        code = terminal.exit_code
        return TerminalOutputResponse(
            output=storable(terminal.output.text),
            truncated=terminal.output.is_cut,
            exit_status=None if code is None else _exit_status(code),
        )

    async def wait_for_terminal_exit(self, session_id: str, terminal_id: str, **_: Any) -> WaitForTerminalExitResponse:
        status = _exit_status(await self.terminals.get(terminal_id).ended())
        return WaitForTerminalExitResponse(exit_code=status.exit_code, signal=status.signal)

    async def kill_terminal(self, session_id: str, terminal_id: str, **_: Any) -> None:
        await self.terminals.get(terminal_id).end()

    async def release_terminal(self, session_id: str, terminal_id: str, **_: Any) -> None:
        await self.terminals.release(terminal_id)

    async def ext_method(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        raise RequestError.method_not_found(method)


async def _done(asked: Awaitable[T]) -> T:
    """Await the answer to a request. Raises RequestError, which is sent to the agent."""
    try:
        return await asked
    except ToolFailed as failed:
        rule = getattr(failed, "rule", None)
        raise RequestError(REFUSED if rule else FAILED, str(failed), {"rule": rule} if rule else None) from None
    except RunnerFailed as failed:
        raise RequestError(FAILED, str(failed)) from None


def _exit_status(code: int) -> TerminalExitStatus:
    if code > 128:
        return TerminalExitStatus(exit_code=None, signal=str(code - 128))
    return TerminalExitStatus(exit_code=code, signal=None)


def _for_operator(call: ToolCallUpdate, paths: Sequence[str]) -> str:
    """Return a call as text for the operator who decides, with the real paths that it is about."""
    given = "" if call.raw_input is None else json.dumps(call.raw_input, ensure_ascii=False, indent=2)
    changes = [f"{block.path}:\n{block.new_text}" for block in call.content or [] if block.type == "diff"]
    return "\n".join(filter(None, [*paths, given, *changes]))


def storable(text: str) -> str:
    """Return a text that every store and every client accepts: without NUL and lone surrogates."""
    return text.replace("\x00", "\ufffd").encode(errors="replace").decode()


def storable_json(value: Any, most: int | None = LONGEST_DETAIL) -> Any:
    """Return a value that every store accepts; if it is large, the beginning of its JSON as text."""
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False)
    except (ValueError, RecursionError):
        return storable(str(type(value).__name__))
    clean = storable(text)
    if most is not None and len(clean) > most:
        return clean[:most]
    return json.loads(clean.replace("\\u0000", "\ufffd"))


MOST_TERMINALS = 16  # at once
MOST_OUTPUT = 1_000_000  # bytes kept of each output


class Terminal:
    """One command."""

    def __init__(self, program: processes.Running, most: int) -> None:
        self.output = processes.Tail(most)
        self._program = program
        self._reading = asyncio.create_task(self.output.fill(program.stdout))

    @property
    def exit_code(self) -> int | None:
        """The exit code; None while the command runs. The last output may come a moment later."""
        return self._program.guardian.returncode if self._reading.done() else None

    async def ended(self) -> int:
        """Wait for the end of the command and of its output; return the exit code."""
        await asyncio.shield(self._reading)
        return await self._program.ended()

    async def end(self) -> None:
        """Kill the command and all that it started."""
        await self._program.end()
        await asyncio.wait([self._reading], timeout=processes.KILL_SECONDS)
        self._reading.cancel()


class Terminals:
    """The terminals of one turn."""

    def __init__(
        self, agent: PoolAgent, confined: Callable[[Sequence[str], str], list[str]], env: Mapping[str, str]
    ) -> None:
        """`confined` returns the command line that runs a command in a directory; `env` is the environment of each."""
        self._agent, self._confined, self._env = agent, confined, env
        self._open: dict[str, Terminal] = {}
        self._made = 0

    async def create(self, command: Sequence[str], cwd: str, env: Mapping[str, str], most: int | None) -> str:
        """Start a command and return its terminal's id. Raises RunnerFailed."""
        if len(self._open) >= MOST_TERMINALS:
            raise RunnerFailed(f"There are {MOST_TERMINALS} terminals already; release one first.")
        wrong = [name for name in env if not name or "=" in name or "\0" in name + env[name]]
        if wrong or any("\0" in word for word in command):
            raise RunnerFailed("A command and its environment are texts without NUL characters.")
        self._made += 1
        terminal_id = f"terminal-{self._made}"
        begun_by = (sys.executable, "-I", "-S", with_environment.__file__) if env else ()
        line = await in_share(self._agent, partial(self._confined, [*begun_by, *command], cwd))
        program = await processes.start(
            line,
            cwd=cwd,
            # Set only inside: otherwise the sandbox's own start would use the agent's paths for programs and libraries.
            env={**self._env, **{with_environment.PREFIX + name: value for name, value in env.items()}},
            stdin=processes.DEVNULL,
            merged=True,
        )
        self._open[terminal_id] = Terminal(program, MOST_OUTPUT if most is None else min(most, MOST_OUTPUT))
        return terminal_id

    def get(self, terminal_id: str) -> Terminal:
        """Return a terminal. Raises the protocol's error for an unknown id."""
        try:
            return self._open[terminal_id]
        except KeyError:
            raise RequestError.resource_not_found(terminal_id) from None

    async def release(self, terminal_id: str) -> None:
        """End a terminal and drop its output."""
        terminal = self.get(terminal_id)
        del self._open[terminal_id]
        await terminal.end()

    async def end(self) -> None:
        """End all terminals."""
        terminals, self._open = list(self._open.values()), {}
        await asyncio.gather(*(terminal.end() for terminal in terminals), return_exceptions=True)
