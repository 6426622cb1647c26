"""The runner `acp`: an agent that speaks the Agent Client Protocol, in a new process for each turn.

The process ends with its turn, so nothing idles and nothing is left over. The agent learns what was said before from
its own session if it can load one, otherwise as text.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import starmap
from pathlib import Path
from typing import Any, TypeVar, cast

from acp import PROTOCOL_VERSION, RequestError, text_block
from acp.core import ClientSideConnection
from acp.schema import (
    AuthCapabilities,
    ClientCapabilities,
    ElicitationCapabilities,
    ElicitationFormCapabilities,
    ElicitationUrlCapabilities,
    EnvVariable,
    FileSystemCapabilities,
    Implementation,
    InitializeResponse,
    McpServerStdio,
    PromptResponse,
)
from pydantic import ValidationError

from nexus.control import faults
from nexus.control.agents.questions import Decision
from nexus.control.agents.transcript import BYTES_A_TOKEN, RUNNER, SESSION
from nexus.control.agents.turns import Closing, Ended
from nexus.control.faults import Fault, FaultKind
from nexus.control.models import Cause, Entry, Role, TurnStatus
from nexus.control.permissions import rules
from nexus.control.permissions.rules import Action
from nexus.control.runners import acp_session, bus, processes, sandbox
from nexus.control.runners.acp_client import PoolClient, Terminals, storable
from nexus.control.runners.acp_transport import BoundedLines
from nexus.control.runners.base import RunnerFailed, Scene, Secrets, in_share, secret_values
from nexus.control.runners.traffic import Log, Wire
from nexus.control.runners_file import Acp, McpServer
from nexus.core.config import CoreSettings
from nexus.core.instance import running as running_server

T = TypeVar("T")

START_SECONDS = 60  # to answer `initialize`, and to open a session
CANCEL_SECONDS = 0.1  # to end a turn that is cancelled, before it is killed
HALT_SECONDS = 5  # to end a turn that has made all the calls it may
LEAVE_SECONDS = 2  # to end by itself, when the turn is over
AUTH_REQUIRED = -32_000
MOST_METHODS = 10
QUOTED = 500  # characters of what a process said, in a turn's why


class SignedOut(RunnerFailed):
    """An agent that opens a session only after a login."""


@dataclass(frozen=True)
class Launch:
    """The surroundings of a turn's processes: their command lines and their environment."""

    runner: Acp
    scene: Scene
    is_confined: bool
    scratch: str  # the directory of the bus's socket
    wire: Wire | None = None  # which logs the messages

    @property
    def mode(self) -> str | None:
        """The session's mode. In the sandbox it may be a looser one, because the sandbox limits the agent."""
        return (self.is_confined and self.runner.mode_in_sandbox) or self.runner.mode

    def confined(self, command: Sequence[str], cwd: str) -> list[str]:
        """Return the command line, wrapped in the sandbox if there is one. Raises RunnerFailed."""
        reading = [self.scratch, str(bus.RELAY)]
        return processes.confined(command, self.runner, self.scene.agent, cwd=cwd, reading=reading)


async def take(runner: Acp, scene: Scene) -> Ended:
    """Run a turn. Raises RunnerFailed, and NOT_PERMITTED if a sandbox is required and there is none."""
    state = await in_share(scene.agent, sandbox.state)
    sandbox.check(runner)

    return await recorded(runner, scene, _take, is_confined=state.works)


async def recorded(
    runner: Acp, scene: Scene, run: Callable[[Launch, str], Awaitable[Ended]], *, is_confined: bool
) -> Ended:
    """Run a turn by `run`, which gets a key of the agent: log its messages, and redact secrets from what is stored.
    Raises RunnerFailed."""
    async with bus.key_of(scene.agent.agent_id) as key:
        with tempfile.TemporaryDirectory(prefix="nexus-", ignore_cleanup_errors=True) as scratch:
            values = (key, *secret_values(runner.variables))
            secrets = Secrets(*values)
            wire = Wire(Log(scene.agent.agent_id, *values, run=scene.turn.pk))
            launch = Launch(runner, _redacting(secrets, scene), is_confined, scratch, wire)
            try:
                ended = await run(launch, key)
            except RunnerFailed as failed:
                why = storable(secrets.struck(str(failed)))
                raise RunnerFailed(why, failed.fault, has_written=failed.has_written) from None
            finally:
                wire.flush()
            return _redacted_end(secrets, ended)


async def _take(launch: Launch, key: str) -> Ended:
    runner, scene = launch.runner, launch.scene
    cwd = scene.agent.cwd
    env = await in_share(scene.agent, partial(processes.environment_of, scene.agent, runner)) | _reach(key, launch)
    if launch.is_confined:
        await in_share(scene.agent, partial(processes.sign_in, runner, scene.agent))
    command = await in_share(scene.agent, partial(launch.confined, runner.command, cwd))
    own_env = await in_share(scene.agent, partial(processes.environment_of, scene.agent))
    terminals = Terminals(scene.agent, launch.confined, own_env)
    async with (
        bus.served(launch.scratch, key) as server,
        processes.running(command, cwd=cwd, env=env, scratch=launch.scratch, grace=LEAVE_SECONDS) as program,
    ):
        try:
            return await converse(launch, PoolClient(scene, terminals, runner.max_iterations), program, server)
        finally:
            await terminals.end()


async def converse(launch: Launch, client: PoolClient, program: processes.Running, server: bus.Bus | None) -> Ended:
    """Run the turn with a started program. The agent reaches the bus if `server` is given."""
    transport = BoundedLines(program.stdout, program.stdin, client.settled, launch.wire)
    connection = ClientSideConnection(  # the client implements only what we offer
        cast(Any, client), transport, use_unstable_protocol=True
    )
    client.is_confined = launch.is_confined
    try:
        try:
            async with asyncio.timeout(START_SECONDS):
                session_id, prompt = await _session(launch, client, connection, server)
        except TimeoutError:
            raise RunnerFailed(f"{_name(launch)} did not open a session within {START_SECONDS} s") from None
        except SignedOut:
            client.session["signed_out"] = True
            raise
        finally:
            await client.tell_session()
        if lost := (launch.scene.agent.session or {}).get("lost"):
            prompt = f"[Nexus: {acp_session.loss(lost, launch.scene.agent.write_paths)}]\n\nNow:\n\n{prompt}"
        response = await _prompted(connection, session_id, prompt, client, program)
        if client.overdone:
            await client.finish()
            raise RunnerFailed(f"{_name(launch)} was stopped: {client.overdone}", has_written=client.has_written)
    except (RequestError, ConnectionError, ValidationError) as error:
        await client.finish()
        why = await _why(error, launch, transport, program)
        raise RunnerFailed(why, _fault(error), has_written=client.has_written) from None
    finally:
        await connection.close()
    closing = await client.close()
    await client.tell_session()
    return replace(_ended(response, client), closing=closing)


async def _session(
    launch: Launch, client: PoolClient, connection: ClientSideConnection, server: bus.Bus | None
) -> tuple[str, str]:
    """Return the session's id and the prompt. The prompt includes what was said before, unless the agent knows it."""
    scene = launch.scene
    offered = await connection.initialize(
        PROTOCOL_VERSION,
        ClientCapabilities(
            fs=FileSystemCapabilities(read_text_file=True, write_text_file=True),
            terminal=rules.may_use(scene.agent.permissions, "run"),
            elicitation=ElicitationCapabilities(form=ElicitationFormCapabilities(), url=ElicitationUrlCapabilities()),
            auth=AuthCapabilities(terminal=True),  # the operator runs such a program: `nexus runners login`
        ),
        Implementation(name="nexus", title="Nexus", version="1"),
    )
    if offered.protocol_version != PROTOCOL_VERSION:
        raise RunnerFailed(
            f"{_name(launch)} speaks version {offered.protocol_version} of the protocol, not {PROTOCOL_VERSION}"
        )
    client.program = offered.agent_info.name if offered.agent_info is not None else ""
    client.session["sign_in"] = acp_session.ways_to_sign_in(offered)
    servers: list[Any] = []
    if server is not None:
        servers = [McpServerStdio(name=bus.NAME, command=server.command, args=list(server.args), env=[])]
    servers += starmap(_stdio, launch.runner.mcp_servers.items())
    stand_in = {RUNNER: scene.turn.runner} if scene.turn.runner else {}
    go_on = _way_to_go_on(connection, offered)
    known = await _known_session(scene) if go_on is not None else None
    if go_on is not None and known is not None:
        client.is_listening = False
        try:
            loaded = await _signed_in(
                launch, connection, offered, partial(go_on, cwd=scene.agent.cwd, session_id=known, mcp_servers=servers)
            )
            await _configure(launch, client, connection, known, loaded)
            client.meta = {SESSION: known, **stand_in}
            return known, scene.turn.content
        except RequestError:
            pass  # the session is gone; a new one gets the history as text
        finally:
            await client.settled()
            client.is_listening = True
    session = await _signed_in(
        launch, connection, offered, partial(connection.new_session, scene.agent.cwd, mcp_servers=servers)
    )
    await _configure(launch, client, connection, session.session_id, session)
    client.meta = {SESSION: client.secrets.cut(session.session_id, QUOTED), **stand_in}
    most = (launch.runner.context_tokens - launch.runner.reply_tokens) * BYTES_A_TOKEN // 2
    return session.session_id, await _prompt(scene.history(), most, await scene.instructions())


def _stdio(name: str, server: McpServer) -> McpServerStdio:
    given = {variable: os.environ[variable] for variable in server.env_from if variable in os.environ} | server.env
    env = [EnvVariable(name=variable, value=value) for variable, value in given.items()]
    return McpServerStdio(name=name, command=server.command[0], args=server.command[1:], env=env)


def _way_to_go_on(
    connection: ClientSideConnection, offered: InitializeResponse
) -> Callable[..., Awaitable[Any]] | None:
    """Return the call that opens an earlier session, None if the agent cannot. Loading comes first: it also tells what
    the session cost before."""
    able = offered.agent_capabilities
    if able is not None and able.load_session:
        return connection.load_session
    sessions = able.session_capabilities if able is not None else None
    return connection.resume_session if sessions is not None and sessions.resume is not None else None


async def _signed_in(
    launch: Launch, connection: ClientSideConnection, offered: InitializeResponse, opened: Callable[[], Awaitable[T]]
) -> T:
    """Return the session that `opened` opens, after a sign-in if the agent requires one. Raises RunnerFailed, which
    says how to sign in."""
    method = launch.runner.auth_method
    try:
        return await opened()
    except RequestError as error:
        if error.code != AUTH_REQUIRED or method is None:
            raise _signed_out(launch, offered, error) from None
    try:
        await connection.authenticate(method)
        return await opened()
    except RequestError as error:
        raise _signed_out(launch, offered, error) from None


def _signed_out(launch: Launch, offered: InitializeResponse, error: RequestError) -> Exception:
    """Return the error; if nobody has signed in, one that says how to."""
    if error.code != AUTH_REQUIRED:
        return error
    runner, secrets = launch.runner, launch.scene.draft.secrets
    methods = ", ".join(f"{method.id} ({method.name})" for method in (offered.auth_methods or [])[:MOST_METHODS])
    return SignedOut(
        f"{_name(launch)} wants a login: run `nexus runners login {runner.name}`, or let the runner's auth_method name "
        f"one of its methods and env_from what that needs. "
        + secrets.cut(f"It offers {methods or 'none'}, and says: {describe_error(error)}", QUOTED),
        Fault(FaultKind.KEY),
    )


async def _configure(
    launch: Launch,
    client: PoolClient,
    connection: ClientSideConnection,
    session_id: str,
    opened: acp_session.Opened,
) -> None:
    """Set the runner's mode, and the options that an operator chose. Raises RunnerFailed for one that the session does
    not have."""
    modes, models = client.modes, client.models = opened.modes, acp_session.older_models(opened)
    options = client.session["options"] = acp_session.config_options(opened.config_options, modes, models)
    wanted = {} if launch.mode is None else {acp_session.MODE: launch.mode}
    await acp_session.choose(connection, session_id, modes, models, options, wanted | launch.scene.agent.options)


async def _prompted(
    connection: ClientSideConnection, session_id: str, prompt: str, client: PoolClient, program: processes.Running
) -> PromptResponse | None:
    """Return the agent's response to the prompt; None if it was stopped because it made too many calls."""
    client.is_prompted = True
    prompting = asyncio.create_task(connection.prompt(session_id, [text_block(prompt)]))
    halting = asyncio.create_task(client.halted.wait())
    try:
        await asyncio.wait((prompting, halting), return_when="FIRST_COMPLETED")
        if not client.halted.is_set():
            return await prompting
        await _stop(connection, session_id, prompting, HALT_SECONDS)
        return None
    except asyncio.CancelledError:
        await _stop(connection, session_id, prompting, CANCEL_SECONDS)
        program.kill()
        await client.finish()
        raise
    finally:
        for task in (prompting, halting):
            task.cancel()
        await asyncio.gather(prompting, halting, return_exceptions=True)


async def _stop(connection: ClientSideConnection, session_id: str, prompting: asyncio.Task[Any], grace: float) -> None:
    with contextlib.suppress(TimeoutError, ConnectionError):
        async with asyncio.timeout(grace):
            await connection.cancel(session_id)
            await asyncio.wait((prompting,))


def _ended(response: PromptResponse | None, client: PoolClient) -> Ended:
    ended = Ended(TurnStatus.DONE, client.answer, iterations=len(client.calls) + 1)
    if response is None:
        return replace(ended, halted=True)
    if usage := response.usage or acp_session.tokens_in(response.field_meta):
        client.used(usage)
    draft = client.scene.draft
    ended = replace(
        ended,
        input_tokens=draft.input_tokens,
        output_tokens=draft.output_tokens,
        cached_tokens=draft.cached_tokens,
        cost=draft.cost,
    )
    match response.stop_reason:
        case "max_turn_requests":
            return replace(ended, halted=True)
        case "max_tokens":
            return replace(ended, why="its model's limit on tokens cut the answer off")
        case "refusal":
            return replace(ended, status=TurnStatus.FAILED, cause=Cause.REFUSED, why="the agent refuses to go on")
        case "cancelled":
            return replace(ended, status=TurnStatus.CANCELLED)
        case _:
            return ended


async def _known_session(scene: Scene) -> str | None:
    """Return the agent's own session of an earlier turn. Sessions from before a requested compaction are left out: they
    would undo it; so are those from before another runner took a turn, which they do not know."""
    async for entry in scene.history():
        meta = entry.meta or {}
        if (entry.role == Role.USER or SESSION in meta) and meta.get(RUNNER) != scene.turn.runner:
            return None
        if "summary_of" in meta and "unasked" not in meta:
            return None
        if SESSION in meta:
            return str(meta[SESSION])
    return None


async def _prompt(history: AsyncIterator[Entry], most: int, instructions: str) -> str:
    """Return the turn's message, after the instructions (the protocol has no system prompt) and the last `most`
    characters of what was said before it."""
    content, said, length = (await anext(history)).content, list[str](), 0
    async for entry in history:
        if entry.role != Role.TOOL and entry.content:
            said.append(f"{entry.role}: {entry.content}")
            length += len(said[-1])
        if length >= most:
            break
    before = "\n\n".join(reversed(said))[-most:]
    parts = [instructions, f"What was said so far:\n\n{before}" if said else ""]
    return "\n\n".join([*filter(None, parts), "Now:", content]) if any(parts) else content


def _reach(key: str, launch: Launch) -> dict[str, str]:
    """Return the environment variables with which the agent's own commands reach the bus. The home itself is not in the
    sandbox."""
    settings = CoreSettings.current()
    reach = {"NEXUS_API_KEY": key}
    if not launch.is_confined:
        reach["NEXUS_HOME"] = str(settings.home)
    if holder := running_server(settings.home):
        reach["NEXUS_URL"] = holder.url
    return reach


def _name(launch: Launch) -> str:
    return f"{Path(launch.runner.command[0]).name!r}"


async def _why(error: Exception, launch: Launch, transport: BoundedLines, program: processes.Running) -> str:
    """Return why a conversation broke off, for operators."""
    name, secrets = _name(launch), launch.scene.draft.secrets
    if transport.failed is not None:
        return f"{name} was stopped: {transport.failed}"
    if isinstance(error, RequestError):
        return f"{name} answered with an error: {secrets.cut(describe_error(error), QUOTED)}"
    if isinstance(error, ValidationError):
        return f"{name} answered what the protocol does not know"
    code = await program.end(grace=LEAVE_SECONDS)
    said = secrets.struck(program.stderr.text.strip())[-QUOTED:]
    how = "was not found, or may not be run" if code == 127 else f"ended in the middle of the turn (exit code {code})"
    return f"{name} {how}" + (f"; it said: {said}" if said else "")


def _fault(error: Exception) -> Fault | None:
    """Return the provider's fault that an agent's error tells of."""
    if not isinstance(error, RequestError):
        return None
    kind = FaultKind.KEY if error.code == AUTH_REQUIRED else faults.of_error(error.code, error.data)
    return None if kind is None else Fault(kind)


def describe_error(error: RequestError) -> str:
    """Return an error as text, with its `data`, which often holds the reason."""
    data = error.data
    if isinstance(data, dict) and len(data) == 1 and isinstance(text := data.get("details", data.get("message")), str):
        return f"{error}: {text}"
    return str(error) if data is None else f"{error} ({json.dumps(data, ensure_ascii=False)})"


def _redacting(secrets: Secrets, scene: Scene) -> Scene:
    """Return a scene that redacts the secrets from what is stored and asked."""

    async def say(
        role: Role, content: str, *, tool_call_id: str | None = None, meta: Mapping[str, Any] | None = None
    ) -> None:
        await scene.say(role, secrets.struck(content), tool_call_id=tool_call_id, meta=secrets.struck_of(meta))

    async def ask(kind: str, title: str, detail: str, *, subject: str, action: Action | None = None) -> Decision:
        title, detail, subject = map(secrets.struck, (title, detail, subject))
        action = None if action is None else action.mapped(secrets.struck)
        return await scene.ask(kind, title, detail, subject=subject, action=action)

    scene.draft.secrets = secrets
    return replace(scene, say=say, ask=ask)


def _redacted_end(secrets: Secrets, ended: Ended) -> Ended:
    """Return the end of a turn with the secrets redacted."""
    said = ended.closing
    closing = None if said is None else Closing(secrets.struck(said.content), secrets.struck_of(said.meta))
    return replace(ended, answer=secrets.struck(ended.answer or ""), closing=closing)
