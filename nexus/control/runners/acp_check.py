"""Manual test of an `acp` runner and sign-in to it, for operators."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shlex
import shutil
import tempfile
import uuid
from collections.abc import AsyncIterator, Callable
from functools import partial
from pathlib import Path
from typing import Any, cast

from acp import PROTOCOL_VERSION, RequestError
from acp.core import ClientSideConnection
from acp.schema import (
    AuthCapabilities,
    ClientCapabilities,
    EnvVarAuthMethod,
    Implementation,
    InitializeResponse,
    TerminalAuthMethod,
)

from nexus.control.agents.questions import Decision
from nexus.control.agents.turns import Ended
from nexus.control.models import Entry, PoolAgent, Role, Turn
from nexus.control.runners import acp, processes, sandbox
from nexus.control.runners.acp_client import PoolClient, Terminals
from nexus.control.runners.acp_transport import BoundedLines
from nexus.control.runners.base import RunnerFailed, Scene, in_share
from nexus.control.runners_file import Acp, presets
from nexus.core import foreign_files
from nexus.core.clock import now
from nexus.core.processes import in_foreground

ASKED = "Answer with the word ok, and do nothing else."
CHECK_SECONDS = 120
SIGN_IN_SECONDS = 600  # a person reads a page, and clicks
Say = Callable[[str], Any]


async def check(runner: Acp, *, say: Say) -> None:
    """Start the runner's agent in the sandbox, open a session and run one turn; call `say` with each step. Raises
    RunnerFailed, which says what is missing."""
    await asyncio.to_thread(sandbox.state)
    sandbox.check(runner)
    say(f"sandbox: {sandbox.describe_limits(runner)}")
    unset = [name for name in runner.variables if name not in os.environ]
    if unset:
        say(f"not set, of what env_from names: {', '.join(unset)}")
    try:
        ended = await _take_turn(runner, say)
    except TimeoutError:
        missing = f"; it may need {', '.join(unset)}" if unset else ""
        raise RunnerFailed(f"it did not answer within {CHECK_SECONDS} s{missing}") from None
    if ended.why is not None:
        raise RunnerFailed(ended.why)
    say(f"answer: {(ended.answer or '').strip()[: acp.QUOTED] or '(none)'}")


async def _take_turn(runner: Acp, say: Say) -> Ended:
    """Take a turn in a new directory, in the sandbox if there is one. Raises TimeoutError."""
    state = sandbox.state()
    _check_program(runner, say)
    cwd = os.path.realpath(tempfile.mkdtemp(prefix="nexus-check-"))
    with tempfile.TemporaryDirectory() as scratch:
        agent = _agent(runner, cwd)
        home = await in_share(agent, partial(processes.home_of, agent))
        try:
            scene = _scene(agent)
            launch = acp.Launch(runner, scene, state.works, scratch)
            if state.works:
                await in_share(agent, partial(processes.sign_in, runner, agent))
            command = await in_share(agent, partial(launch.confined, runner.command, agent.cwd))
            env = await in_share(agent, partial(processes.environment_of, agent, runner))
            terminals = Terminals(agent, launch.confined, env)
            client = PoolClient(scene, terminals, runner.max_iterations)
            async with processes.running(command, cwd=agent.cwd, env=env, scratch=scratch) as program:
                try:
                    async with asyncio.timeout(CHECK_SECONDS):
                        return await acp.converse(launch, client, program, None)
                finally:
                    await terminals.end()
        finally:
            for made in (home, cwd):
                with contextlib.suppress(OSError):
                    foreign_files.remove(made)


async def login(runner: Acp, *, method: str | None, say: Say) -> None:
    """Sign in to the runner's agent in the operator's own home, with the given method, else the runner's, else the
    first that the agent offers. Raises RunnerFailed."""
    _check_program(runner, say)
    async with _connected(runner) as (connection, offered):
        methods = {each.id: each for each in offered.auth_methods or []}
        for each in methods.values():
            say(f"it offers {each.id}: {each.name}" + (f" ({each.description})" if each.description else ""))
        wanted = method or runner.auth_method or next(iter(methods), None)
        if wanted is None:
            raise RunnerFailed("it offers no way to sign in: it needs none, or only variables, to be named in env_from")
        chosen = methods.get(wanted)
        if chosen is None:
            raise RunnerFailed(f"it offers no method {wanted!r}")
        if isinstance(chosen, EnvVarAuthMethod):
            names = ", ".join(each.name for each in chosen.vars)
            raise RunnerFailed(f"{wanted} takes variables: set {names} where the hub starts, and name them in env_from")
        if not isinstance(chosen, TerminalAuthMethod):
            say(f"signing in with {wanted}: follow its instructions")
            try:
                async with asyncio.timeout(SIGN_IN_SECONDS):
                    await connection.authenticate(wanted)
            except RequestError as error:
                raise RunnerFailed(f"it did not sign in: {acp.describe_error(error)}") from None
            except TimeoutError:
                raise RunnerFailed(f"nobody signed in within {SIGN_IN_SECONDS} s") from None
            say("signed in")
            return
    await _sign_in_here(runner, chosen, say)


async def _sign_in_here(runner: Acp, method: TerminalAuthMethod, say: Say) -> None:
    """Run the agent's program that signs in, in the operator's terminal. Raises RunnerFailed."""
    line = [*runner.command, *(method.args or [])]
    say(f"running {shlex.join(line)}")
    env = {**os.environ, **runner.env, **(method.env or {})}
    try:
        done = await asyncio.to_thread(in_foreground, line, cwd=str(Path.home()), env=env)
    except OSError as error:
        raise RunnerFailed(f"{line[0]} could not be started: {error.strerror}") from None
    if done.code:
        raise RunnerFailed(f"{line[0]} ended with exit code {done.code}; nobody signed in")
    say("signed in")


def _check_program(runner: Acp, say: Say) -> None:
    found = shutil.which(runner.command[0])
    if found is None:
        package = presets().get(runner.preset or "", {}).get("package")
        hint = f"; npm install --global {package} brings it" if package else ""
        raise RunnerFailed(f"there is no program {runner.command[0]!r} on the PATH{hint}")
    say(f"program: {found}")


@contextlib.asynccontextmanager
async def _connected(runner: Acp) -> AsyncIterator[tuple[ClientSideConnection, InitializeResponse]]:
    """Yield the agent, started outside the sandbox, after its handshake. Its stderr goes to the operator. Raises
    RunnerFailed."""

    async def settled() -> None:
        pass

    env = {**os.environ, **runner.env}
    async with processes.running(runner.command, cwd=str(Path.home()), env=env, shown=True) as program:
        transport = BoundedLines(program.stdout, program.stdin, settled)
        connection = ClientSideConnection(cast(Any, object()), transport)
        try:
            async with asyncio.timeout(acp.START_SECONDS):
                offered = await connection.initialize(
                    PROTOCOL_VERSION,
                    ClientCapabilities(auth=AuthCapabilities(terminal=True)),
                    Implementation(name="nexus", title="Nexus", version="1"),
                )
            yield connection, offered
        except TimeoutError:
            raise RunnerFailed(f"{runner.command[0]} did not answer within {acp.START_SECONDS} s") from None
        except (RequestError, ConnectionError) as error:
            raise RunnerFailed(f"{runner.command[0]} failed: {error}") from None
        finally:
            await connection.close()


def _agent(runner: Acp, cwd: str) -> PoolAgent:
    """Return an unsaved agent for one turn."""
    moment, name = now(), f"check-{uuid.uuid4().hex[:12]}"
    return PoolAgent(
        pool_agent_id=name, agent_id=name, depth=0, preset="worker", cwd=cwd, runner=runner.name, is_temporary=True,
        created_by="check", created_at=moment, last_action_at=moment,
    )  # fmt: skip


def _scene(agent: PoolAgent) -> Scene:
    """Return the scene of a turn that stores nothing and refuses every question."""
    turn = Turn(pk="check", agent=agent, content=ASKED)

    async def history() -> AsyncIterator[Entry]:
        yield Entry(agent=agent, role=Role.USER, content=ASKED, position=0)

    async def say(role: Role, content: str, **_: Any) -> None:
        pass

    async def ask(kind: str, title: str, detail: str, **_: Any) -> Decision:
        return Decision(False, "Nobody is asked in a check.")

    async def call(toolset: str, name: str, arguments: Any) -> Any:
        raise RunnerFailed("a check calls nothing")

    return Scene(agent, turn, history, say, ask, call)
