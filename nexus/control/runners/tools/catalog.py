"""The tools that an agent is offered: files, programs and the hub's operations, as its preset allows, without those
that were taken from it.

A program is bounded in time and output, and ended with all that it started when the call ends. An operation of the hub
is called in process, as that agent, for its own project.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Annotated, Any

from pydantic import Field, ValidationError

from coordination.models import Workspace
from nexus.control.agents.transcript import estimate
from nexus.control.models import TITLE_LENGTH, PoolAgent
from nexus.control.permissions import rules
from nexus.control.permissions.members import PROJECT_PARAMETER
from nexus.control.permissions.rules import Action, Kind, Permissions, Preset, Verdict
from nexus.control.runners import processes, sandbox
from nexus.control.runners.base import RunnerFailed, Scene, in_share
from nexus.control.runners.tools import files, searching
from nexus.control.runners.tools.files import ToolFailed, ToolRefused, check_tool, on_disk, resolved
from nexus.control.runners_file import runners
from nexus.control.toolset import CONTROL, PREFIX
from nexus.core.operations.errors import NexusError
from nexus.core.operations.parameters import Params, Schema, parameters_schema
from nexus.core.operations.registry import Choice, Operation, choose
from nexus.core.operations.replies import packaged
from nexus.core.waiting import READERS, in_thread

INSTRUCTIONS = packaged("nexus.control", "agent")
MOST_CHARACTERS = 64 * 1024  # of a result; an agent's context pays for it


@dataclass(frozen=True)
class Tool:
    """A tool: its description for the model, and its function."""

    name: str
    description: str
    schema: Schema
    call: Callable[[Scene, Mapping[str, Any]], Awaitable[str]]  # raises ToolFailed

    @property
    def tokens(self) -> int:
        """The estimated tokens of its description in every request."""
        return estimate(f"{self.name}{self.description}{self.schema}")


def tools(permissions: Permissions) -> Mapping[str, Tool]:
    """Return every tool that an agent has, by name."""
    # An agent that writes nowhere is not offered to write: its model would try, and be refused.
    nowhere = frozenset() if permissions.write_paths else rules.WRITING
    return _tools(permissions.preset, permissions.disabled_tools | nowhere)


def instructions(agent: PoolAgent) -> str:
    """Return what an agent over a model is told in every request, before what files say."""
    writes = f"you write below {', '.join(agent.write_paths)}" if agent.write_paths else "you write no files"
    own = INSTRUCTIONS().format(agent_id=agent.agent_id, cwd=agent.cwd, writes=writes)
    return "\n\n".join([own, *(toolset.instructions() for toolset in toolsets(agent.permissions.preset))])


def tokens(permissions: Permissions) -> int:
    """Estimate the tokens that the tools' descriptions take in every request."""
    return sum(tool.tokens for tool in tools(permissions).values())


async def call(scene: Scene, offered: Mapping[str, Tool], name: str, arguments: Mapping[str, Any]) -> str:
    """Call one of the tools that are offered, and return its result or its error as text for the model."""
    tool = offered.get(name)
    if tool is None:
        return f"Error: there is no tool {name[:100]!r} for this agent."
    try:
        result = await tool.call(scene, arguments)
    except ToolFailed as failed:
        return f"Error: {failed}"
    if len(result) > MOST_CHARACTERS:
        return f"{result[:MOST_CHARACTERS]}\n[cut off after {MOST_CHARACTERS} characters of {len(result)}]"
    return result


@lru_cache(maxsize=64)
def _tools(preset: rules.Preset, disabled: frozenset[str]) -> Mapping[str, Tool]:
    offered = rules.USES[preset] - disabled
    found = {each.name: _of_own(each) for each in TOOLS if each.name in offered}
    for operation in hub_operations(preset, disabled):
        found.setdefault(operation.name, _of_hub(operation))
    return found


def _of_own(tool: Own) -> Tool:
    return Tool(tool.name, tool.description, parameters_schema(tool.params), partial(_called, tool))


def _of_hub(operation: Operation[Any]) -> Tool:
    schema = parameters_schema(operation.params, accepts_anything=operation.accepts_anything)
    return Tool(operation.name, operation.description, schema, partial(call_operation, operation))


async def _called(tool: Own, scene: Scene, arguments: Mapping[str, Any]) -> str:
    try:
        params = tool.params.model_validate(arguments)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(map(str, first["loc"]))[:100]
        raise ToolFailed(f"{where}: {first['msg']}.") from None
    return await tool.call(scene, params)


KEPT = 16 * 1024  # bytes of the output's beginning, and of its end
MOST_OUTPUT = 64 * 1024 * 1024  # bytes; a program that prints more is ended


@dataclass(frozen=True)
class ProgramEnd:
    """The end of a program: its exit code and output."""

    code: int | None  # 128 plus the number of the signal that ended it; None: ended by us
    output: str
    why: str | None = None  # why it was ended by us


async def run_program(
    permissions: Permissions, line: Sequence[str], *, env: Mapping[str, str], seconds: float
) -> ProgramEnd:
    """Run a command line in the agent's directory and return what it prints, stderr included. Raises ToolFailed.

    It gets no input, and `env` as its environment. After `seconds`, or when cancelled, it is ended with all it started.
    """
    check_tool(permissions, "run")
    output, code, why = ProgramOutput(), None, None
    try:
        async with processes.running(
            line, cwd=permissions.cwd, env=env, stdin=processes.DEVNULL, merged=True
        ) as program:
            try:
                async with asyncio.timeout(seconds):
                    if await output.fill(program.stdout):
                        code = await program.ended()
                    else:
                        why = f"it printed over {MOST_OUTPUT} bytes"
            except TimeoutError:
                why = f"it took longer than {seconds:g} seconds"
    except RunnerFailed as failed:
        raise ToolFailed(f"The program cannot be started: {failed}.") from None
    return ProgramEnd(code, output.text(), why)


class ProgramOutput:
    """The beginning and the end of an output."""

    def __init__(self) -> None:
        self.first, self.last, self.size = bytearray(), bytearray(), 0

    async def fill(self, stream: asyncio.StreamReader) -> bool:
        """Read to the end; False if that does not come in time."""
        while data := await stream.read(processes.CHUNK):
            self.size += len(data)
            room = max(KEPT - len(self.first), 0)
            self.first += data[:room]
            self.last = (self.last + data[room:])[-KEPT:]
            if self.size > MOST_OUTPUT:
                return False
            await asyncio.sleep(processes.PAUSE_SECONDS)
        return True

    def text(self) -> str:
        """Return what is kept, as text."""
        left_out = self.size - len(self.first) - len(self.last)
        gap = f"\n[{left_out} bytes left out]\n".encode() if left_out else b""
        return (bytes(self.first) + gap + bytes(self.last)).decode(errors="replace")


EVERYONES = ("ask_operator", "pool_review_answer")


def hub_operations(preset: Preset, disabled: frozenset[str]) -> Iterator[Operation[Any]]:
    """Yield the operations of the hub that an agent of this preset may call; every agent may ask an operator, and
    answer a review."""
    chosen = toolsets(preset)
    for toolset in chosen:
        for operation in toolset.tools:
            if toolset is not CONTROL or operation.name.removeprefix(PREFIX) not in disabled:
                yield operation
    if CONTROL not in chosen:
        yield from map(CONTROL.find, EVERYONES)


def toolsets(preset: Preset) -> Choice:
    """Return the toolsets of this preset."""
    return choose(rules.TOOLSETS[preset])


async def call_operation(operation: Operation[Any], scene: Scene, arguments: Mapping[str, Any]) -> str:
    """Call an operation and return the reply in the toolset's form. Raises ToolRefused for a project that is not the
    agent's."""
    named = arguments.get(PROJECT_PARAMETER)
    if isinstance(named, str):  # otherwise it is absent, or validation refuses it
        arguments = {**arguments, PROJECT_PARAMETER: await _project(scene.agent, named)}
    outcome = await scene.call(operation.toolset.name, operation.name, arguments)
    reply = operation.toolset.reply
    return reply.text(outcome, reply.body(outcome))


async def _project(agent: PoolAgent, named: str) -> str:
    """Return the real path of a project. Raises ToolRefused unless it lies at or below the agent's directory, or is an
    existing project that contains it."""
    permissions = agent.permissions
    project = await on_disk(agent, partial(resolved, permissions, named))
    if rules.within(project, (permissions.cwd,)):
        return project
    if rules.within(permissions.cwd, (project,)) and await in_thread(READERS, partial(_is_known, project)):
        return project
    raise ToolRefused(
        "cwd",
        f"{PROJECT_PARAMETER} must lie at or below this agent's directory, {permissions.cwd}, or be a project that "
        f"holds it; {named[:200]} is neither.",
    )


def _is_known(project: str) -> bool:
    return Workspace.objects.filter(root_realpath=project).exists()


LINES, MOST_LINES = 2_000, 20_000
MOST_SECONDS = 3_600  # of a program

Path = Annotated[str, Field(min_length=1, max_length=4096, description="Relative ones: below your directory.")]


@dataclass(frozen=True)
class Own:
    """A tool that is not an operation of the hub."""

    name: str
    description: str
    params: type[Params]
    call: Callable[[Scene, Any], Awaitable[str]]  # raises ToolFailed


class ReadFile(Params):
    path: Path
    line: Annotated[int, Field(ge=1, description="The first line, counted from 1.")] = 1
    limit: Annotated[int, Field(ge=1, le=MOST_LINES, description="Lines.")] = LINES


class WriteFile(Params):
    path: Path
    content: str


class EditFile(Params):
    path: Path
    old_text: Annotated[str, Field(min_length=1, description="To the letter; it must occur once.")]
    new_text: str
    replace_all: bool = False


class ListDirectory(Params):
    path: Path = "."


class Glob(Params):
    pattern: Annotated[str, Field(min_length=1, description="Such as **/*.py.")]
    path: Path = "."


class Grep(Params):
    pattern: Annotated[str, Field(min_length=1, description="A regular expression (RE2), matched line by line.")]
    path: Path = "."
    glob: Annotated[str | None, Field(description="Only files that fit, such as *.py.")] = None


class Run(Params):
    command: Annotated[str, Field(min_length=1, max_length=32_768, description="A line of shell.")]
    timeout_seconds: Annotated[int, Field(ge=1, le=MOST_SECONDS)] = 120


async def _file(scene: Scene, kind: Kind, path: str) -> str:
    """Return a file's real path if neither a rule nor an operator forbids the action; the path as it is if there are no
    rules. Raises ToolFailed."""
    if not await scene.rules():
        return path
    permissions = scene.agent.permissions
    real = await on_disk(
        scene.agent, partial(files.writable if kind is Kind.WRITE else files.readable, permissions, path)
    )
    named = os.path.normpath(os.path.join(permissions.cwd, path))
    action = Action(kind, paths=(real,), named=(named,), cwd=permissions.cwd)
    await decided(scene, action, Verdict.ALLOWED, f"{kind.capitalize()} {path}"[:TITLE_LENGTH], "")
    return real


async def decided(scene: Scene, action: Action, ceiling: Verdict, title: str, detail: str) -> None:
    """Check an action by the rules, its ceiling and, if these want it, by an operator. Raises ToolRefused."""
    ruling = await scene.decide(action, ceiling)
    if ruling.rule is not None:
        scene.rulings.append(str(ruling))
    if ruling.verdict is Verdict.REFUSED:
        raise ToolRefused("rule", f"It was {ruling}.")
    if ruling.verdict is Verdict.ASKED:
        detail = "\n\n".join(filter(None, [str(ruling), detail]))
        decision = await scene.ask("permission", title, detail, subject=str(action), action=action)
        if not decision.allowed:
            raise ToolRefused("asked", f"It was not allowed: {decision.words or 'no'}.")


async def _read(scene: Scene, p: ReadFile) -> str:
    path = await _file(scene, Kind.READ, p.path)
    text = await on_disk(
        scene.agent, partial(files.read_text, scene.agent.permissions, path, line=p.line, limit=p.limit + 1)
    )
    lines = text.split("\n")
    if len(lines) <= p.limit:
        return text
    return "\n".join(lines[: p.limit]) + f"\n[more: read on from line {p.line + p.limit}]"


async def _write(scene: Scene, p: WriteFile) -> str:
    path = await _file(scene, Kind.WRITE, p.path)
    await on_disk(scene.agent, partial(files.write_text, scene.agent.permissions, path, p.content))
    return f"{p.path} is written."


async def _edit(scene: Scene, p: EditFile) -> str:
    path = await _file(scene, Kind.WRITE, p.path)
    replaced = await on_disk(
        scene.agent,
        partial(files.edit_text, scene.agent.permissions, path, p.old_text, p.new_text, everywhere=p.replace_all),
    )
    return f"{p.path}: replaced {replaced} times." if replaced > 1 else f"{p.path} is edited."


async def _list(scene: Scene, p: ListDirectory) -> str:
    path = await _file(scene, Kind.READ, p.path)
    names, whole = await on_disk(scene.agent, partial(files.list_directory, scene.agent.permissions, path))
    return _as_text(names, None if whole else f"it has over {files.MOST_ENTRIES} entries")


async def _glob(scene: Scene, p: Glob) -> str:
    path = await _file(scene, Kind.READ, p.path)
    return _as_text(*await on_disk(scene.agent, partial(searching.glob, scene.agent.permissions, p.pattern, path)))


async def _grep(scene: Scene, p: Grep) -> str:
    path, known = await _file(scene, Kind.READ, p.path), await scene.rules()
    return _as_text(
        *await on_disk(scene.agent, partial(searching.grep, scene.agent.permissions, p.pattern, path, p.glob, known))
    )


async def _run(scene: Scene, p: Run) -> str:
    check_tool(scene.agent.permissions, "run")
    await decided(
        scene,
        Action(Kind.RUN, p.command, cwd=scene.agent.cwd),
        Verdict.ASKED,
        f"Run a program: {p.command[:80]}",
        f"{p.command}\n\nin {scene.agent.cwd}",
    )
    try:
        line, env = await in_share(scene.agent, partial(_confined, scene, ["/bin/sh", "-c", p.command]))
        ran = await run_program(scene.agent.permissions, line, env=env, seconds=p.timeout_seconds)
    except RunnerFailed as failed:
        raise ToolFailed(f"The program cannot be started: {failed}.") from None
    how = f"ended: {ran.why}" if ran.why else f"exit {ran.code}"
    return f"[{how}]\n{ran.output}"


def _confined(scene: Scene, command: list[str]) -> tuple[list[str], dict[str, str]]:
    """Return the command line that runs a command, in the sandbox if there is one, and its environment without
    secrets."""
    agent = scene.agent
    try:
        runner = runners().named(scene.turn.runner or agent.runner)
        sandbox.check_programs(runner)
    except NexusError as error:
        raise ToolFailed(f"The program cannot be started: {error}.") from None
    return processes.confined(command, runner, agent, cwd=agent.cwd), processes.environment_of(agent)


TOOLS = (
    Own("read_file", "Read a text file.", ReadFile, _read),
    Own("write_file", "Write a text file, whole; directories above it are made.", WriteFile, _write),
    Own("edit_file", "Replace a text in a file.", EditFile, _edit),
    Own(
        "list_directory", "List a directory: `/` stands behind directories, `@` behind symlinks.", ListDirectory, _list
    ),
    Own("glob", "Find files by name: `*`, `?`, `[a-z]`, and `**` for any number of directories.", Glob, _glob),
    Own("grep", "Find lines by what they hold.", Grep, _grep),
    Own("run", "Run a line of shell in your directory, once a person allows it.", Run, _run),
)


def _as_text(lines: list[str], cut: str | None) -> str:
    return "\n".join([*lines, *([f"[cut off: {cut}]"] if cut else [])]) or "[nothing]"
