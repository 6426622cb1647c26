"""The tools for files and programs, as a model calls them."""

from __future__ import annotations

import pathlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any

from pydantic import Field

from nexus.control.runners import confinement, new_repositories, processes, sandbox
from nexus.control.runners.base import RunnerFailed, Scene
from nexus.control.runners.configuration import runners
from nexus.control.tools import files, programs, searching
from nexus.control.tools.paths import ToolFailed, ToolRefused, check_tool, on_disk
from nexus.core.operations.errors import NexusError
from nexus.core.operations.parameters import Params
from nexus.core.waiting import OUTSIDE, in_thread

LINES, MOST_LINES = 2_000, 20_000
MOST_SECONDS = 3_600  # of a program
MOST_NOTES = 20  # about renamed repositories

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


async def _read(scene: Scene, p: ReadFile) -> str:
    text = await on_disk(partial(files.read_text, scene.agent.permissions, p.path, line=p.line, limit=p.limit + 1))
    lines = text.split("\n")
    if len(lines) <= p.limit:
        return text
    return "\n".join(lines[: p.limit]) + f"\n[more: read on from line {p.line + p.limit}]"


async def _write(scene: Scene, p: WriteFile) -> str:
    await on_disk(partial(files.write_text, scene.agent.permissions, p.path, p.content))
    return f"{p.path} is written."


async def _edit(scene: Scene, p: EditFile) -> str:
    replaced = await on_disk(
        partial(files.edit_text, scene.agent.permissions, p.path, p.old_text, p.new_text, everywhere=p.replace_all)
    )
    return f"{p.path}: replaced {replaced} times." if replaced > 1 else f"{p.path} is edited."


async def _list(scene: Scene, p: ListDirectory) -> str:
    names, whole = await on_disk(partial(files.list_directory, scene.agent.permissions, p.path))
    return _listed(names, None if whole else f"it has over {files.MOST_ENTRIES} entries")


async def _glob(scene: Scene, p: Glob) -> str:
    return _listed(*await on_disk(partial(searching.glob, scene.agent.permissions, p.pattern, p.path)))


async def _grep(scene: Scene, p: Grep) -> str:
    return _listed(*await on_disk(partial(searching.grep, scene.agent.permissions, p.pattern, p.path, p.glob)))


async def _run(scene: Scene, p: Run) -> str:
    check_tool(scene.agent.permissions, "run")
    decision = await scene.ask(
        "permission", f"Run a program: {p.command[:80]}", f"{p.command}\n\nin {scene.agent.cwd}", subject="run"
    )
    if not decision.allowed:
        raise ToolRefused("asked", f"The program was not allowed: {decision.words or 'no'}.")
    try:
        async with new_repositories.watched(scene.agent) as aside:
            line, env = await in_thread(OUTSIDE, partial(_confined, scene, ["/bin/sh", "-c", p.command]))
            ran = await programs.run(scene.agent.permissions, line, env=env, seconds=p.timeout_seconds)
    except RunnerFailed as failed:
        raise ToolFailed(f"The program cannot be started: {failed}.") from None
    how = f"ended: {ran.why}" if ran.why else f"exit {ran.code}"
    notes = [f"[a new repository was set aside as {path}]" for path in aside[:MOST_NOTES]]
    return "\n".join([f"[{how}]", *notes, ran.output])


def _confined(scene: Scene, command: list[str]) -> tuple[list[str], dict[str, str]]:
    """Return the command line that runs a command, in the sandbox if there is one, and its environment without
    secrets."""
    env, agent = processes.environment(), scene.agent
    try:
        runner = runners().named(agent.runner)
        sandbox.check_programs(runner)
        if not sandbox.state().works:
            return command, {**env, "HOME": str(pathlib.Path.home())}
        return confinement.confined(command, runner, agent, cwd=agent.cwd), {**env, "HOME": confinement.home_of(agent)}
    except (NexusError, RunnerFailed) as failed:
        raise ToolFailed(f"The program cannot be started: {failed}.") from None


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


def _listed(lines: list[str], cut: str | None) -> str:
    return "\n".join([*lines, *([f"[cut off: {cut}]"] if cut else [])]) or "[nothing]"
