"""Plays a fixture: its precondition in a project directory, its calls over real stdio, its assertions after each."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from anyio.from_thread import start_blocking_portal
from mcp import MCPError

from tests.acceptance.processes import client
from tests.conformance.assertions import disagreements
from tests.conformance.loading import Fixture
from tests.conformance.validation import STATE_FILES, parsed, problem

BRANCH = "trunk"
PATIENCE = 60  # seconds for one answer
Call = Callable[[str, Mapping[str, Any]], dict[str, Any]]  # a tool's name and arguments, to its envelope
Git = Literal["none", "branch", "detached"]
Pairs = tuple[tuple[str, Any], ...]


class NoAnswer(Exception):
    """A call that nothing came of, which is no refusal."""


@dataclass(frozen=True)
class Step:
    """One call, and what must be true after it."""

    label: str
    tool: str
    params: Mapping[str, Any]
    returned: Pairs  # assertions by path
    files: Pairs  # assertions by file
    refused: bool = False
    refused_with: str = ""


@contextmanager
def server(home: Path) -> Iterator[Call]:
    """A `runmcp` process over a home, with the planning tools; gives what calls them, and raises NoAnswer."""
    with (
        start_blocking_portal() as portal,
        portal.wrap_async_context_manager(client(home, NEXUS_TOOLSETS="planning")) as connected,
    ):

        def call(tool: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
            try:
                answer = portal.call(connected.call_tool, tool, dict(arguments), PATIENCE)
            except (MCPError, ValueError) as error:  # a ValueError of the client: it cannot send this
                raise NoAnswer(str(error)) from None
            return dict(answer.structured_content or {})

        yield call


def play(fixture: Fixture, call: Call, project: Path, git: Git = "none") -> list[str]:
    """What disagrees, a line for each; the first step that does is the last that is played.

    The project directory must be there, and empty.
    """
    if fixture.fault:
        return [fixture.fault]
    _make_repository(project, git)
    try:
        written = dict(_establish(project, fixture.body.get("precondition", {}).get("state_files", {})))
    except OSError as error:
        return [f"the precondition cannot be written: {error.strerror}"]
    for step in _steps(fixture.body):
        try:
            envelope = call(step.tool, {**step.params, "project_root": str(project)})
        except NoAnswer as error:
            return [f"{step.label}no answer: {error}"]
        problems = [*_of_answer(step, envelope), *_of_files(step, project), *_of_schemas(project, written)]
        if problems:
            return [f"{step.label}{line}" for line in problems]
    return []


def _steps(body: Mapping[str, Any]) -> Iterator[Step]:
    steps = body.get("steps", [body])
    for number, step in enumerate(steps, 1):
        after = body.get("postcondition", {}) if number == len(steps) else {}
        yield Step(
            label=f"step {number}: " if "steps" in body else "",
            tool=step["action"]["tool"],
            params=step["action"]["params"],
            returned=(*step.get("assert_return", {}).items(), *after.get("return_value", {}).items()),
            files=(*step.get("assert_state", {}).items(), *after.get("state_files", {}).items()),
            refused=after.get("error", False),
            refused_with=after.get("error_contains", ""),
        )


def _establish(project: Path, files: Mapping[str, Any]) -> Iterator[tuple[str, bytes]]:
    """Write the files of a precondition, each told with its bytes; a null needs nothing, for the project is new."""
    for name, content in files.items():
        if content is not None:
            path = project / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(text := json.dumps(content, ensure_ascii=False, indent=2).encode())
            yield name, text


def _of_answer(step: Step, envelope: Mapping[str, Any]) -> Iterator[str]:
    """The assertions about an answer: a refusal reads as `error` with its message."""
    failed = not envelope.get("ok")
    error = envelope.get("error", {}) if failed else {}
    message = error.get("message", "")
    expected = step.refused or step.refused_with or any(path == "$.error" for path, _ in step.returned)
    if failed and not expected:
        yield f"error: expected none, found {error.get('code')}: {message}"
        return
    if expected and not failed:
        yield f"error: expected {repr(step.refused_with) if step.refused_with else 'one'}, found none"
    elif step.refused_with not in message:
        yield f"error: expected {step.refused_with!r} in it, found {message!r}"
    yield from disagreements({"error": message} if failed else envelope["data"], step.returned)


def _of_files(step: Step, project: Path) -> Iterator[str]:
    for name, assertions in step.files:
        path = project / name
        if not os.path.lexists(path):
            if assertions is not None:
                yield f"{name}: expected a file, found none"
        elif assertions is None:
            yield f"{name}: expected no file, found one"
        elif assertions:  # {} asks for the file alone
            try:
                document = parsed(path.read_bytes())
            except (OSError, ValueError) as error:
                yield f"{name}: expected JSON, found none: {error}"
            else:
                yield from (f"{name} {line}" for line in disagreements(document, assertions.items()))


def _of_schemas(project: Path, written: Mapping[str, bytes]) -> Iterator[str]:
    """State files that break their schema; not those that still are as the precondition has them."""
    for name, schema in STATE_FILES.items():
        path = project / name
        if not os.path.lexists(path):
            continue
        try:
            text = path.read_bytes()
            found = None if text == written.get(name) else problem(schema, parsed(text))
        except (OSError, ValueError) as error:
            found = f"is no JSON: {error}"
        if found:
            yield f"{name} breaks its schema {found}"


def _make_repository(project: Path, git: Git) -> None:
    if git == "none":
        return
    commands: Iterable[list[str]] = (
        ["init", "-q", "-b", BRANCH],
        ["-c", "user.name=n", "-c", "user.email=n@example.org", "commit", "-q", "--allow-empty", "-m", "Start"],
        *([["checkout", "-q", "--detach"]] if git == "detached" else []),
    )
    environ = {**os.environ, "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}
    for command in commands:
        subprocess.run(["git", *command], cwd=project, env=environ, check=True)
