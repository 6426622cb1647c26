"""`runners.toml` in the home: the runners of the pool's agents (docs/how-to/run-a-pool.md)."""

from __future__ import annotations

import math
import os
import re
import stat
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path, PurePath
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError, ValidationInfo, field_validator

from nexus.core.config import CoreSettings
from nexus.core.installation import needs_extra
from nexus.core.operations.errors import Code, NexusError, invalid

FILE = "runners.toml"
LARGEST = 1_048_576  # bytes
NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
NEEDED = {"acp": ("acp", "acp"), "model": ("models", "pydantic_ai")}  # extra and its package
PRESETS = Path(__file__).with_name("presets.toml")
ID = Annotated[str, Field(min_length=1, max_length=200)]
LABEL_PATTERN = r"[A-Za-z0-9_.-]{1,64}"
LABEL = Annotated[str, Field(pattern=f"^{LABEL_PATTERN}$")]
VARIABLE = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$", max_length=255)]
CLONED_FROM = ("https", "ssh")
HOST_AND_PATH = re.compile(r"\w[\w.-]*@\w[\w.-]*:[\w./~][\w./~+-]*", re.ASCII)  # as in git@example.com:shop.git
REMOVED_KIND = "ssh"  # which runs no more: the file is read without it until 0.3
OWN_PATH = Annotated[str, Field(pattern=r"^(/|~/)")]


class _Common(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)

    name: str = ""  # of its table
    context_tokens: Annotated[int, Field(ge=1_000, le=100_000_000)] = 200_000
    reply_tokens: Annotated[int, Field(ge=1, le=1_000_000, validate_default=True)] = 8_192  # kept free for the answer
    max_iterations: Annotated[int, Field(ge=1, le=10_000)] = 50  # calls of the model, or rounds of tools, a turn
    turn_seconds: Annotated[int, Field(ge=1, le=86_400)] = 3_600  # limit of a turn
    stuck_seconds: Annotated[int, Field(ge=1, le=86_400)] = 600  # without an update, until a run counts as stuck
    stuck_calls: Annotated[int, Field(ge=2, le=1_000)] = 5  # the same call with the same result so often: a loop
    labels: list[LABEL] = []  # its agents live on a machine that has all of these
    run_retries: Annotated[int, Field(ge=0, le=1_000)] = 10  # of a run that a fault of the provider ended

    @property
    def available_tokens(self) -> int:
        """The tokens that the context holds besides the answer."""
        return self.context_tokens - self.reply_tokens

    @field_validator("reply_tokens")
    @classmethod
    def _leaves_room(cls, tokens: int, given: ValidationInfo) -> int:
        if tokens >= given.data.get("context_tokens", math.inf):
            raise ValueError("it must be less than context_tokens")
        return tokens

    @property
    def variables(self) -> Sequence[str]:
        """The names of the environment variables that the runner needs."""
        return ()


def is_server_name(name: str) -> bool:
    """Return whether an MCP server may have this name."""
    return NAME.fullmatch(name) is not None and not name.startswith("nexus")  # calls of the bus pass without a question


class McpServer(BaseModel):
    """An MCP server that an agent has beside the bus."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)

    command: Annotated[list[Annotated[str, Field(min_length=1)]], Field(min_length=1)]
    env_from: list[VARIABLE] = []
    env: dict[VARIABLE, str] = {}


class Programs(_Common):
    """A runner whose agents have a provider, MCP servers beside the bus, and programs in the sandbox."""

    fallback: str | None = None  # the runner that takes its turns while its provider is out
    mcp_servers: dict[str, McpServer] = {}  # by name
    network: bool = True
    read_paths: list[OWN_PATH] = []  # that programs see, such as the agent's own programs, and its sign-in

    @property
    def variables(self) -> Sequence[str]:
        return [name for server in self.mcp_servers.values() for name in server.env_from]

    @field_validator("mcp_servers")
    @classmethod
    def _are_not_the_bus(cls, servers: dict[str, McpServer]) -> dict[str, McpServer]:
        for name in servers:
            if not is_server_name(name):
                raise ValueError("a server's name has letters, digits, `_` and `-`, and does not begin with nexus")
        return servers


class Acp(Programs):
    """A runner whose agent is a child process that speaks the Agent Client Protocol."""

    kind: Literal["acp"]
    preset: str | None = None  # in presets.toml; it gives the fields that are missing here
    command: Annotated[list[Annotated[str, Field(min_length=1)]], Field(min_length=1)]
    env_from: list[VARIABLE] = []
    env: dict[VARIABLE, str] = {}  # further variables, with these values
    auth_method: ID | None = None  # the sign-in method, if a session requires one
    mode: ID | None = None  # of its sessions
    mode_in_sandbox: ID | None = None  # replaces `mode` in Nexus's sandbox
    sign_in: list[Annotated[str, Field(pattern=r"^~/[^/]")]] = []  # the operator's files to copy into its HOME
    take_over: list[str] = []  # the command line that continues its session, `{session}`, in a person's terminal

    @property
    def variables(self) -> Sequence[str]:
        return [*self.env_from, *super().variables]


class Model(Programs):
    """A runner that calls a model in our own loop."""

    kind: Literal["model"]
    model: Annotated[str, Field(pattern=r"^[a-z0-9-]+:.+$")]
    base_url: Annotated[str, Field(pattern=r"^https?://")] | None = None
    api_key_env: VARIABLE | None = None
    retries: Annotated[int, Field(ge=0, le=10)] = 2  # of a request that fails with a temporary error
    stall_seconds: Annotated[int, Field(ge=1, le=3_600)] = 120  # without data until a request counts as failed

    @property
    def variables(self) -> Sequence[str]:
        return [*([self.api_key_env] if self.api_key_env else ()), *super().variables]


class _Scripted(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)


class ScriptedCall(_Scripted):
    """A call in a script: of an operation, or of a tool of the agent."""

    operation: Annotated[str, Field(pattern=r"^[a-z]+\.[a-z_]+$")]  # toolset.name, or tools.name
    arguments: dict[str, Any] = {}
    optional: bool = False  # go on although it is refused


class ScriptedQuestion(_Scripted):
    """A question to the operators in a script."""

    kind: Literal["permission", "question"]
    title: Annotated[str, Field(min_length=1)]
    detail: str = ""
    subject: str = ""


class ScriptStep(_Scripted):
    """A step of a script: what the rehearsal does for a matching message. The first that matches is played."""

    when: re.Pattern[str] | None = None  # must match the message
    after: list[re.Pattern[str]] = []  # each must match a message so far
    call: list[ScriptedCall] = []
    ask: ScriptedQuestion | None = None
    wait: Annotated[float, Field(ge=0, le=86_400)] = 0.0  # seconds
    fail: Annotated[str, Field(min_length=1)] | None = None  # why
    say: str = "You said: {content}"


class Rehearsal(_Common):
    """A runner that answers from a script, without a model, and says so."""

    kind: Literal["rehearsal"]
    script: list[ScriptStep] = []


def is_remote(text: str, schemes: Sequence[str]) -> bool:
    """Return whether a text is an address of one of these schemes, or like git@example.com:shop.git; else it may be a
    path. Raises ValueError for what git must not get."""
    if not text.isprintable() or text != text.strip():
        raise ValueError("must be the address of a repository, or its path")
    if HOST_AND_PATH.fullmatch(text):
        return True
    parts = urlsplit(text)
    if parts.scheme not in schemes or not parts.hostname or not text.isascii() or " " in text:
        return False
    if parts.password is not None or (parts.username is not None and parts.scheme != "ssh"):
        raise ValueError("must not hold credentials: git takes them from your own configuration")
    if parts.hostname.startswith("-") or (parts.username or "").startswith("-"):
        raise ValueError("must name a host")
    return True


class Clone(BaseModel):
    """The repository of which each agent directly below a directory gets a clone, on the machine of this file."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)

    directory: str = ""  # the name of its table
    git: Annotated[str, Field(min_length=1, max_length=2_000)]
    branch: Annotated[str, Field(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_./+-]*$", max_length=200)] | None = None
    seconds: Annotated[int, Field(ge=1, le=86_400)] = 600  # limit of one clone
    files: Annotated[str, Field(pattern="^/", max_length=2_000)] | None = None  # a project whose local files it gets

    @field_validator("git")
    @classmethod
    def _is_a_repository(cls, text: str) -> str:
        if not is_remote(text, CLONED_FROM) and not text.startswith("/"):
            raise ValueError("it must be an https or ssh address, one like git@example.com:shop.git, or a path from /")
        return text


Runner = Acp | Model | Rehearsal
KINDS = ("acp", "model", "rehearsal")
_TABLE: TypeAdapter[Runner] = TypeAdapter(Annotated[Runner, Field(discriminator="kind")])


@dataclass(frozen=True)
class Runners:
    """All runners of a home."""

    by_name: Mapping[str, Runner]
    default: str
    clones: Mapping[str, Clone] = field(default_factory=dict)  # by directory
    removed: Sequence[str] = ()  # names of runners of the removed kind

    def clone_of(self, cwd: str) -> Clone | None:
        """Return what an agent's directory is cloned from, if it is not there; None if nothing is configured."""
        return self.clones.get(str(PurePath(cwd).parent)) if PurePath(cwd).name else None

    def named(self, name: str | None) -> Runner:
        """Return the runner of this name, or the default one. Raises VALIDATION_ERROR."""
        name = name or self.default
        if name in self.removed:
            raise invalid(self.remark, field="model")
        try:
            return self.by_name[name]
        except KeyError:
            known = ", ".join(sorted(self.by_name))
            raise invalid(f"There is no runner {name[:100]!r} in {FILE}; there are {known}.", field="model") from None

    @property
    def remark(self) -> str:
        """What became of the runners of the removed kind; empty if the file names none."""
        if not self.removed:
            return ""
        return (
            f"No runner has the kind {REMOVED_KIND} any more, so no run starts on {', '.join(self.removed)}: start "
            f"`nexus run-pool` on that machine, and let the runner have a label of it (docs/how-to/run-a-pool.md)."
        )


def describe(known: Runners) -> str:
    """Return the runners' names, or what to do about the file."""
    if known.remark:
        return known.remark
    others = sorted(name for name in known.by_name if name != known.default)
    if known.by_name == {REHEARSAL.name: REHEARSAL}:
        return f"{REHEARSAL.name} alone: no model answers until {CoreSettings.current().home / FILE} names one"
    return ", ".join([f"{known.default} (the default)", *others])


REHEARSAL = Rehearsal(kind="rehearsal", name="rehearsal")  # always exists


_read_well: dict[Path, Runners] = {}  # the last valid content, in this process


def runners() -> Runners:
    """Return the runners of this home from its file; if that is invalid, as this process last could read it.

    Raises CONFIG_ERROR, which names what to change, if it never could.
    """
    path = CoreSettings.current().home / FILE
    try:
        known = _read_well[path] = read_runners(path)
    except NexusError:
        if path not in _read_well:
            raise
        return _read_well[path]
    return known


def problem() -> str:
    """Return what is wrong with the file of this home now, and which runners hold meanwhile; empty if it is valid."""
    try:
        read_runners(CoreSettings.current().home / FILE)
    except NexusError as error:
        return f"{error.message} A server that runs goes on with what the file said before; none starts."
    return ""


def remarks() -> str:
    """Return what an operator has to change in the file of this home; empty if nothing."""
    return problem() or runners().remark


def read_runners(path: Path) -> Runners:
    """Return the runners in a file. Raises CONFIG_ERROR, which names what to change."""
    try:
        stamp = path.stat()
    except FileNotFoundError:
        return Runners({REHEARSAL.name: REHEARSAL}, REHEARSAL.name)
    except OSError as error:
        raise _wrong(path, f"cannot be read: {error.strerror}") from None
    if not stat.S_ISREG(stamp.st_mode):  # a pipe would wait for a writer
        raise _wrong(path, "is no file")
    return _read(path, stamp.st_mtime_ns, stamp.st_size)


def changed_at() -> datetime | None:
    """Return when the file was last changed or moved into its place; None if there is none."""
    try:
        return datetime.fromtimestamp((CoreSettings.current().home / FILE).stat().st_ctime, UTC)
    except OSError:
        return None


def start_programs() -> bool:
    """Return whether a turn may start a program, by the file; unknown, and therefore true, if the file is invalid."""
    try:
        known = read_runners(CoreSettings.current().home / FILE)
        return any(not isinstance(runner, Rehearsal) for runner in known.by_name.values())
    except NexusError:
        return True


@lru_cache(maxsize=1)
def presets() -> Mapping[str, Mapping[str, Any]]:
    """Return the presets of known agents: the fields of a runner, its npm `package`, and the versions `tried`."""
    return tomllib.loads(PRESETS.read_text(encoding="utf-8"))


def _with_preset(table: Mapping[str, Any]) -> dict[str, Any]:
    """Return a runner's table, completed from its preset. Raises ValueError for an unknown preset."""
    name = table.get("preset")
    if name is None or table.get("kind", "acp") != "acp":
        return dict(table)
    if name not in presets():
        raise ValueError(f"there is no preset {str(name)[:100]!r}; there are {', '.join(sorted(presets()))}")
    known = {field: value for field, value in presets()[name].items() if field in Acp.model_fields}
    return {"kind": "acp", **known, **table, "env": {**known.get("env", {}), **table.get("env", {})}}


@lru_cache(maxsize=4)
def _read(path: Path, _changed: int, size: int) -> Runners:
    if size > LARGEST:
        raise _wrong(path, f"has over {LARGEST} bytes")
    try:
        tables = tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise _wrong(path, f"cannot be read: {error.strerror}") from None
    except (UnicodeDecodeError, tomllib.TOMLDecodeError, RecursionError) as error:
        raise _wrong(path, f"is no TOML: {error}") from None
    default, listed = tables.pop("default", None), tables.pop("runners", {})
    cloned = tables.pop("clones", {})
    if tables or not isinstance(listed, dict) or not isinstance(cloned, dict):
        wrong = next(iter(tables), "clones" if isinstance(listed, dict) else "runners")
        raise _wrong(path, f'takes `default` and tables [runners.NAME] and [clones."/DIRECTORY"], not {wrong!r}')
    removed = [name for name, table in listed.items() if isinstance(table, dict) and table.get("kind") == REMOVED_KIND]
    by_name: dict[str, Runner] = {REHEARSAL.name: REHEARSAL}
    for name, table in listed.items():
        if name not in removed:
            by_name[name] = _runner(path, name, table)
    for runner in by_name.values():
        name = None if isinstance(runner, Rehearsal) else runner.fallback
        if name is not None and (name not in by_name or name == runner.name):
            raise _wrong(path, f"is wrong at runners.{runner.name}.fallback: there is no other runner {name[:100]!r}")
        if name is not None and not set(by_name[name].labels) <= set(runner.labels):  # its agents stay where they are
            raise _wrong(path, f"is wrong at runners.{runner.name}.fallback: {name} needs labels that it does not name")
    default = next(iter(listed), REHEARSAL.name) if default is None else default
    if not isinstance(default, str) or default not in (*by_name, *removed):
        raise _wrong(path, f"names {default!r} as default, and has no [runners.{default}]")
    clones = {name: _clone(path, name, table) for name, table in cloned.items()}
    return Runners(by_name, default, clones, removed)


def _clone(path: Path, directory: str, table: Any) -> Clone:
    where = f"clones.{directory[:200]!r}"
    if not directory.startswith("/") or not directory.isprintable() or os.path.normpath(directory) != directory:
        raise _wrong(path, f"is wrong at {where}: it must be an absolute path, without `..` or `/` at its end")
    try:
        return Clone.model_validate({**table, "directory": directory} if isinstance(table, dict) else table)
    except ValidationError as error:
        first = error.errors()[0]
        raise _wrong(path, f"is wrong at {'.'.join([where, *map(str, first['loc'])])}: {first['msg']}") from None


def _runner(path: Path, name: str, table: Any) -> Runner:
    if not NAME.fullmatch(name):
        raise _wrong(path, f"has a runner called {name[:100]!r}; use letters, digits, `_` and `-`")
    try:
        table = {**_with_preset(table), "name": name} if isinstance(table, dict) else table
    except (TypeError, ValueError) as error:
        raise _wrong(path, f"is wrong at runners.{name}.preset: {error}") from None
    try:
        runner = _TABLE.validate_python(table)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"] if part not in KINDS) or "kind"
        raise _wrong(path, f"is wrong at runners.{name}.{where}: {first['msg']}") from None
    extra, package = NEEDED.get(runner.kind, ("", ""))
    if extra and find_spec(package) is None:
        what = f"The runner {name} of kind {runner.kind} in {path}"
        raise NexusError(Code.CONFIG_ERROR, f"{needs_extra(what, extra)}.", {"file": str(path)})
    return runner


def _wrong(path: Path, why: str) -> NexusError:
    return NexusError(Code.CONFIG_ERROR, f"{path} {why}. docs/how-to/run-a-pool.md shows one.", {"file": str(path)})
