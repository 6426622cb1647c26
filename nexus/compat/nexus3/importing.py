"""Import of a home of NEXUS3: its sessions become ended agents, its models become runners; all of it, or nothing."""

from __future__ import annotations

import difflib
import hashlib
import json
import math
import os
import re
import shutil
import tempfile
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from coordination.models import ID_LENGTH, Agent
from nexus.compat.nexus3.source import NOTHING, Nexus3Home, Session, damaged
from nexus.compat.nexus3.wire import our_tools
from nexus.control import runners_file
from nexus.control.agents.transcript import estimate
from nexus.control.models import PATH_LENGTH, Entry, PoolAgent, Role, RuleScope
from nexus.control.permissions import operator_rules, patterns, rules
from nexus.control.permissions.rules import READING, RUNNING, TOOLS, WRITING, Kind, Preset
from nexus.control.runners_file import NAME
from nexus.core.clock import now
from nexus.core.database.store import write
from nexus.core.operations.errors import NexusError, invalid
from nexus.maintenance.store_file import Progress

AT_ONCE = 200  # entries
USED = {Kind.READ: READING, Kind.WRITE: WRITING, Kind.RUN: RUNNING}
PRESETS = {"sandboxed": Preset.SANDBOXED, "trusted": Preset.TRUSTED, "yolo": Preset.TRUSTED}  # by level
COMPATIBLE = ("openrouter", "openai", "ollama", "vllm")  # providers that speak the protocol of OpenAI
ADDRESS = re.compile(r"https?://[A-Za-z0-9.:\[\]_-]+(/[A-Za-z0-9./_-]*)?")  # without a password and a query
VARIABLE = re.compile("[A-Za-z_][A-Za-z0-9_]*")
USUAL_WINDOW, USUAL_VARIABLE = 131_072, "OPENROUTER_API_KEY"
USUAL_URL, ANTHROPIC_URL = "https://openrouter.ai/api/v1", "https://api.anthropic.com"
KEYLESS = "none"
UNKNOWN_RUNNER = "nexus3"  # of a session that does not name its model


class NewRule(NamedTuple):
    """A rule of permissions for the agents of a runner."""

    effect: str
    kind: str
    pattern: str
    name: str
    scope: str = RuleScope.RUNNER

    def __str__(self) -> str:
        what = f"{self.effect} {self.kind} {self.pattern}"
        return f"agents of the runner {self.name}: {what.strip()}"


class Import:
    """One import: counts what it finds and writes, and notes what has no place here."""

    def __init__(self, source: Nexus3Home, *, home: Path, operator: str, progress: Progress) -> None:
        self.new: Counter[str] = Counter()
        self.unmoved: Counter[str] = Counter()
        self._source, self._operator, self._progress = source, operator, progress
        self._file = home / runners_file.FILE
        self._before = self._runners_now()
        self._models: dict[str, tuple[Mapping[str, Any], Mapping[str, Any]]] = {}  # provider and model, by alias
        self.runners = self._new_runners()
        self.rules = self._add_presets()
        self._add_servers()
        self._note_unmoved()

    @property
    def found(self) -> dict[str, int]:
        """How much the home holds."""
        sessions = self._source.sessions
        return {
            "sessions": len(sessions),
            "messages": sum(session.messages for session in sessions),
            "runners": len(self.runners),
            "rules": len(self.rules),
        }

    @property
    def diff(self) -> str:
        """What is added to runners.toml. Lines that are there are left out: they may hold a secret."""
        lines = difflib.unified_diff(
            self._before.splitlines(), self._after.splitlines(), str(self._file), str(self._file), lineterm="", n=0
        )
        return "\n".join(lines)

    def run(self) -> None:
        """Write everything that is not here yet. Raises VALIDATION_ERROR and CONFIG_ERROR, and then wrote nothing."""
        with write():
            self._agents()
            for rule in self.rules:
                operator_rules.add(**rule._asdict(), operator=self._operator)
            if self.runners:
                self._write_runners()
        self.new.update(runners=len(self.runners), rules=len(self.rules))

    def _agents(self) -> None:
        left = total = len(self._source.sessions)
        made: dict[str, PoolAgent] = {}  # the newest of each name
        for session in _parents_first(self._source.sessions):
            pk = _id_of(session)
            known = PoolAgent.objects.filter(pk=pk).first()
            if known is not None:
                made[session.agent_id] = known
                self.unmoved["sessions that went on since they were imported"] += (
                    known.last_action_at < session.modified_at
                )
            elif self._is_anothers(session.agent_id):
                self.unmoved[f"the session of {session.agent_id}, which is an agent outside of the pool here"] += 1
            else:
                try:
                    made[session.agent_id] = self._agent(pk, session, made.get(session.parent or ""))
                except RecursionError:  # nested deeper than JSON is written
                    raise damaged(session.path) from None
            left -= 1
            self._progress(0, left, total)

    def _is_anothers(self, agent_id: str) -> bool:
        """Return whether a name is an identity that the pool did not create, which an operator could give away then."""
        return Agent.everyone.filter(pk=agent_id).exists() and not PoolAgent.objects.filter(agent_id=agent_id).exists()

    def _agent(self, pk: str, session: Session, parent: PoolAgent | None) -> PoolAgent:
        content = self._source.content(session)
        entries = list(_said(content))
        agent = PoolAgent.objects.create(
            pool_agent_id=pk,
            agent_id=session.agent_id,
            parent=parent,
            depth=parent.depth + 1 if parent else 0,
            preset=PRESETS.get(session.level, Preset.SANDBOXED),
            cwd=_text(session.cwd)[:PATH_LENGTH],
            disabled_tools=sorted(TOOLS & set(our_tools(session.disabled_tools))),
            runner=_text(session.model or UNKNOWN_RUNNER)[:ID_LENGTH],
            is_temporary=rules.is_temporary(session.agent_id),
            entries_made=len(entries),
            entries_known=len(entries),
            created_by=parent.agent_id if parent else self._operator,
            created_at=session.created_at,
            last_action_at=session.modified_at,
            ended_at=now(),  # so that retention counts from here
        )
        for start in range(0, len(entries), AT_ONCE):
            Entry.objects.bulk_create(
                Entry(agent=agent, position=position, created_at=session.created_at, **fields)
                for position, fields in enumerate(entries[start : start + AT_ONCE], start)
            )
        self.new["agents"] += 1
        self.new["entries"] += len(entries)
        return agent

    def _note_unmoved(self) -> None:
        sessions = self._source.sessions
        self.unmoved["links, pipes and others that are no files"] += self._source.left_out
        self.unmoved["clipboards of agents"] += sum(session.has_clipboard for session in sessions)
        self.unmoved["sessions with the level yolo, which is trusted here"] += sum(
            session.level == "yolo" for session in sessions
        )
        for name, preset in self._presets:
            runner = f" --model {name}" if name in self.runners else ""
            self.unmoved[f"the preset {_name(name)}: create its agents with {_as_options(preset)}{runner}"] += 1

    def _new_runners(self) -> dict[str, str]:
        """Return the tables of the runners that the file does not have, by name."""
        here = runners_file.read(self._file).by_name
        given, found = self._source.configuration, dict[str, str]()
        for provider, table in _tables(given.get("providers")):
            for alias, model in _tables(table.get("models")):
                problem = self._problem(alias, table, model)
                if problem is None and (alias in here or alias in found):
                    problem = "a runner of this name is here"
                if problem is not None:
                    self.unmoved[f"the model {_name(alias)} of {_name(provider)}: {problem}"] += 1
                else:
                    self._models[alias] = table, model
                    found[alias] = _runner(alias, table, model, given.get("max_tool_iterations"))
            for field in ("extra_headers", "ssl_ca_cert", "api_version", "deployment"):
                self.unmoved[f"{field} of the provider {_name(provider)}"] += bool(table.get(field))
            self.unmoved[f"verify_ssl = false of the provider {_name(provider)}"] += table.get("verify_ssl") is False
        return found

    @property
    def _presets(self) -> list[tuple[str, Mapping[str, Any]]]:
        return _tables(_table(self._source.configuration.get("permissions")).get("presets"))

    def _add_presets(self) -> list[NewRule]:
        """Add a runner for each preset, with the default model, and return the rules that hold for its agents."""
        given, found = self._source.configuration, list[NewRule]()
        default = _table_default(given, self.runners)
        here = runners_file.read(self._file).by_name
        for name, preset in self._presets if default else ():
            if NAME.fullmatch(name) and name not in PRESETS and name not in here and name not in self.runners:
                provider, model = self._models[str(default)]
                text = _runner(name, provider, model, given.get("max_tool_iterations"))
                text += "\nnetwork = false" if preset.get("network_access") is False else ""
                if further := list(filter(None, map(_absolute, _paths(preset, "allowed_paths")[1:]))):
                    text += f"\nread_paths = [{', '.join(map(_quoted, further))}]"
                self.runners[name] = text
                found += _rules(name, preset)
                unclear = sum(_blocked(path) is None for path in _paths(preset, "blocked_paths"))
                self.unmoved[f"blocked paths of the preset {name} that are not absolute"] += unclear
                unclear = sum(_absolute(path) is None for path in _paths(preset, "allowed_paths"))
                self.unmoved[f"allowed paths of the preset {name} that are not absolute"] += unclear
                limited = sum(each.get("timeout") is not None for _, each in _tables(preset.get("tool_permissions")))
                limited += preset.get("default_tool_timeout") is not None
                self.unmoved[f"time limits of tools of the preset {name}: a call of run names its own"] += limited
        return found

    def _add_servers(self) -> None:
        """Give each new runner the MCP servers."""
        tables = dict[str, str]()
        for server in _dicts(self._source.configuration.get("mcp_servers")):
            name, command = str(server.get("name")), _command(server)
            variables = list(dict.fromkeys([*_strings(server.get("env_passthrough")), *_table(server.get("env"))]))
            if not runners_file.is_server_name(name):
                problem = "its name has other characters than letters, digits, _ and -, or begins with nexus"
            elif command is None:
                problem = "it is no command that a runner could start"
            elif not all(map(VARIABLE.fullmatch, variables)):
                problem = "one of its variables has an invalid name"
            elif name in tables:
                problem = "another server has its name"
            elif server.get("enabled") is False:
                problem = "it is not enabled"
            else:
                line = ", ".join(map(_quoted, command))
                further = f"\nenv_from = [{', '.join(map(_quoted, variables))}]" if variables else ""
                tables[name] = f"command = [{line}]{further}"
                for variable in _table(server.get("env")):
                    self.unmoved[f"the value of {variable} of the MCP server {name}: the hub needs it, too"] += 1
                self.unmoved[f"the directory of the MCP server {name}: it runs in its agent's"] += bool(
                    server.get("cwd")
                )
                continue
            self.unmoved[f"the MCP server {_name(name)}: {problem}"] += 1
        for runner in self.runners:
            self.runners[runner] += "".join(
                f"\n\n[runners.{runner}.mcp_servers.{name}]\n{table}" for name, table in tables.items()
            )

    def _problem(self, alias: str, provider: Mapping[str, Any], model: Mapping[str, Any]) -> str | None:
        """Return why a model cannot be a runner; None if it can."""
        kind, url = provider.get("type", "openrouter"), provider.get("base_url")
        if not NAME.fullmatch(alias):
            return "a runner's name has letters, digits, _ and -"
        if not isinstance(model.get("id"), str) or not model["id"].isprintable() or not model["id"]:
            return "it has no id"
        if type(window := model.get("context_window", USUAL_WINDOW)) is not int or not 1_000 <= window <= 100_000_000:
            return "its context is no number of tokens from 1,000 on"
        if not VARIABLE.fullmatch(str(provider.get("api_key_env", USUAL_VARIABLE))):
            return "its api_key_env is no name of a variable"
        if kind == "anthropic":
            return None if url in (None, ANTHROPIC_URL) else "a runner reaches Anthropic at its own address alone"
        if kind not in COMPATIBLE:
            return f"there is no runner for providers of the type {_name(kind)}"
        if url is not None and (not isinstance(url, str) or not ADDRESS.fullmatch(url)):
            return "its base_url is no plain address; it may hold a secret"
        return None

    @property
    def _after(self) -> str:
        default = _table_default(self._source.configuration, self.runners)
        head = f"default = {_quoted(default)}\n" if default and not self._before.strip() else ""
        parts = [part for part in (self._before.rstrip("\n"), head.rstrip("\n"), *self.runners.values()) if part]
        return "\n\n".join(parts) + "\n" if self.runners else self._before

    def _runners_now(self) -> str:
        try:
            return self._file.read_text(encoding="utf-8") if self._file.is_file() else ""
        except (OSError, UnicodeDecodeError):
            raise invalid(f"{NOTHING}: {self._file} cannot be read. Correct it first.") from None

    def _write_runners(self) -> None:
        draft = self._draft()
        try:
            if self._runners_now() != self._before:
                raise invalid(f"{NOTHING}: {self._file} was changed meanwhile. Try again.")
            draft.replace(self._file.resolve())
        finally:
            draft.unlink(missing_ok=True)

    def _draft(self) -> Path:
        """Return a checked file beside the one that it replaces. Raises VALIDATION_ERROR and CONFIG_ERROR."""
        try:
            handle, name = tempfile.mkstemp(prefix=f".{self._file.name}.", suffix=".partial", dir=self._file.parent)
            draft = Path(name)
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                file.write(self._after)
            if self._file.exists():
                shutil.copymode(self._file, draft)
        except OSError as error:
            raise invalid(f"{NOTHING}: {self._file} cannot be written: {error.strerror}.") from None
        try:
            runners_file.read(draft)
        except NexusError as error:
            draft.unlink(missing_ok=True)
            message = error.message.replace(str(draft), str(self._file))
            raise NexusError(error.code, f"{NOTHING}: {message}") from None
        return draft


def _parents_first(sessions: Iterable[Session]) -> list[Session]:
    """Return sessions so that a parent comes before its children. Those that are their own ancestors come as they
    are."""
    left, done, names = list(sessions), list[Session](), set[str]()
    while left:
        waiting = {session.agent_id for session in left}
        ready = [each for each in left if each.parent is None or each.parent in names or each.parent not in waiting]
        ready = ready or left
        done += ready
        names |= {session.agent_id for session in ready}
        gone = set(ready)
        left = [session for session in left if session not in gone]
    return done


def _id_of(session: Session) -> str:
    """Return the id of an imported agent: one that sorts by time like our own, the same each time."""
    digest = hashlib.sha256(f"nexus3 {session.agent_id} {session.created_at.isoformat()}".encode()).hexdigest()
    return f"pool_{max(int(session.created_at.timestamp() * 1000), 0):012x}7{digest[:19]}"


def _said(content: Mapping[str, Any]) -> Iterable[dict[str, Any]]:
    """Yield the fields of a session's entries."""
    if isinstance(prompt := content.get("system_prompt"), str) and prompt:
        yield _entry(Role.SYSTEM, prompt, None, {})
    for message in content["messages"]:
        meta = dict(message["meta"]) if isinstance(message.get("meta"), dict) else {}
        if message.get("tool_calls"):
            meta["tool_calls"] = message["tool_calls"]
        yield _entry(Role(message["role"]), message.get("content") or "", message.get("tool_call_id"), meta)


def _entry(role: Role, content: str, tool_call_id: str | None, meta: Mapping[str, Any]) -> dict[str, Any]:
    content, clean = _text(content), _clean(meta) or None
    return {
        "role": role,
        "content": content,
        "tool_call_id": tool_call_id and _text(tool_call_id)[:ID_LENGTH],
        "meta": clean,
        "tokens": estimate(content) + (estimate(str(clean)) if clean else 0),
    }


def _text(text: str) -> str:
    """Return a text without what a store cannot hold."""
    return text.replace("\0", "\ufffd").encode(errors="replace").decode()


def _clean(value: Any) -> Any:
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, dict):
        return {_text(key): _clean(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_clean(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _table(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _tables(value: Any) -> list[tuple[str, Mapping[str, Any]]]:
    return [(name, each) for name, each in _table(value).items() if isinstance(each, dict)]


def _dicts(value: Any) -> list[Mapping[str, Any]]:
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []


def _name(value: Any) -> str:
    """Return a name for a terminal."""
    return "".join(letter if letter.isprintable() else "?" for letter in str(value))[:80]


def _as_options(preset: Mapping[str, Any]) -> str:
    """Return a preset as the options of `nexus rpc create`."""
    base = preset.get("extends")
    tools = [name for name, each in _tables(preset.get("tool_permissions")) if each.get("enabled") is False]
    parts = [f"--preset {base if base in ('trusted', 'sandboxed') else Preset.SANDBOXED}"]
    cwd = next(filter(None, map(_absolute, _paths(preset, "allowed_paths"))), None)
    parts += [f"--cwd {_name(cwd)}"] if cwd else []
    parts += [f"--write-path {_name(path)}" for path in _write_paths(preset) if cwd and rules.within(path, (cwd,))]
    parts += [f"--disable-tool {tool}" for tool in sorted(TOOLS & set(our_tools(tools)))]
    return " ".join(parts)


def _rules(name: str, preset: Mapping[str, Any]) -> list[NewRule]:
    """Return the rules of a preset: what its disabled tools do, what it asks about, and the paths that it blocks."""
    tools = _tables(preset.get("tool_permissions"))
    disabled = set(our_tools(tool for tool, each in tools if each.get("enabled") is False or _nowhere(each)))
    asked = set(our_tools(tool for tool, each in tools if each.get("requires_confirmation") is True))
    if _nowhere(preset):
        disabled |= READING | WRITING
    found = [NewRule("deny", kind, "", name) for kind, those in USED.items() if those <= disabled]
    found += [NewRule("ask", kind, "", name) for kind, those in USED.items() if those & asked]
    for path in filter(None, map(_blocked, _paths(preset, "blocked_paths"))):
        found += [NewRule("deny", kind, path, name) for kind in (Kind.READ, Kind.WRITE)]
    return found


def _paths(table: Mapping[str, Any], field: str) -> list[Any]:
    paths = table.get(field)
    return paths if isinstance(paths, list) else []


def _nowhere(table: Mapping[str, Any]) -> bool:
    """Return whether a preset, or a tool of one, is allowed no path at all; null allows every path."""
    return table.get("allowed_paths") == []


def _write_paths(preset: Mapping[str, Any]) -> list[str]:
    """Return where the writing tools of a preset are allowed to write."""
    tools = _tables(preset.get("tool_permissions"))
    given = [path for tool, each in tools if WRITING & set(our_tools([tool])) for path in _paths(each, "allowed_paths")]
    return list(dict.fromkeys(filter(None, map(_absolute, given))))


def _absolute(path: Any) -> str | None:
    """Return a path of a preset without `~`; None for one that is relative, or climbs up."""
    if not isinstance(path, str) or not path.isprintable():
        return None
    whole = f"{Path.home()}{path[1:]}" if path.startswith("~/") else path
    return whole if whole.startswith("/") and ".." not in whole.split("/") else None


def _blocked(path: Any) -> str | None:
    """Return the pattern of a path that a preset blocks; None if it has none."""
    whole = _absolute(path)
    pattern = patterns.escaped(whole or "")
    return pattern if whole and rules.is_pattern(pattern) else None


def _table_default(given: Mapping[str, Any], runners: Mapping[str, str]) -> str | None:
    alias = str(given.get("default_model", "")).rpartition("/")[2]
    return alias if alias in runners else None


def _runner(alias: str, provider: Mapping[str, Any], model: Mapping[str, Any], iterations: Any) -> str:
    """Return a runner's table. A key is named by its variable, and never read."""
    kind = provider.get("type", "openrouter")
    lines = [f"[runners.{alias}]", 'kind = "model"', f"model = {_quoted(kind + ':' + model['id'])}"]
    if kind != "anthropic":
        lines.append(f"base_url = {_quoted(provider.get('base_url') or USUAL_URL)}")
    if provider.get("auth_method") != KEYLESS:
        lines.append(f"api_key_env = {_quoted(provider.get('api_key_env', USUAL_VARIABLE))}")
    window = model.get("context_window", USUAL_WINDOW)
    lines.append(f"context_tokens = {window}")
    if window <= 16_384:
        lines.append(f"reply_tokens = {window // 4}")
    if type(iterations) is int and 1 <= iterations <= 10_000:
        lines.append(f"max_iterations = {iterations}")
    seconds, retries = provider.get("request_timeout"), provider.get("max_retries")
    if isinstance(seconds, int | float) and 0 < seconds <= 3_600:
        lines.append(f"stall_seconds = {math.ceil(seconds)}")
    if type(retries) is int and 0 <= retries <= 10:
        lines.append(f"retries = {retries}")
    return "\n".join(lines)


def _command(server: Mapping[str, Any]) -> list[str] | None:
    """Return the command line of an MCP server; None if it has none, or one that is no text."""
    given, arguments = server.get("command"), server.get("args")
    line = given if isinstance(given, list) else [given, *(arguments if isinstance(arguments, list) else [])]
    return line if all(isinstance(word, str) and word for word in line) and line else None


def _strings(value: Any) -> list[str]:
    return [each for each in value if isinstance(each, str)] if isinstance(value, list) else []


def _quoted(value: Any) -> str:
    return json.dumps(str(value), ensure_ascii=False).replace("\x7f", "\\u007f")
