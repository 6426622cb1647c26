"""The runner `ssh`: an agent that speaks the Agent Client Protocol on another machine, by OpenSSH's client.

One connection, OpenSSH's master, serves several runs on a host, and ends with the last. The remote command is
always the same text: what is different goes over stdin, where neither a shell nor a list of processes shows it. The
program reaches the bus by a socket there, which OpenSSH forwards to the hub's; no key of the bus leaves the hub.

Nothing of this limits what the program does there: no sandbox of ours reaches that far, and the hub opens no file for
it.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import secrets
import shutil
import tempfile
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from acp import RequestError
from acp.schema import CreateTerminalResponse, ReadTextFileResponse, ToolCallUpdate, WriteTextFileResponse

from nexus.control.faults import Fault, FaultKind
from nexus.control.runners import acp, bus, processes, sandbox
from nexus.control.runners.acp_calls import Judgement, judge, paths_named
from nexus.control.runners.acp_client import PoolClient, Terminals
from nexus.control.runners.base import RunnerFailed, Scene
from nexus.control.runners.bus import Bus
from nexus.control.runners.configuration import Ssh
from nexus.control.services.turns import Ended
from nexus.core.processes import GUARDIAN, NEUTRAL, environment
from nexus.core.waiting import uninterrupted

PROGRAM = "ssh"
FAR = Path(__file__).parent / "programs" / "far.py"
SHIPPED = (bus.RELAY, Path(GUARDIAN))
# Every login shell takes it as it is: it has single quotes outside and nothing that is special within.
COMMAND = (
    "python3 -I -S -c 'import json, sys; given = json.loads(sys.stdin.buffer.readline()); space = {}; "
    'exec(given["source"], space); space["main"](given)\''
)
CONNECT_SECONDS = 10  # for TCP alone
START_SECONDS = 60  # until the program starts: to connect, and to sign in
ALIVE_SECONDS, ALIVE_MOST = 3, 3  # a host that does not answer so often is lost
BEAT_SECONDS = 5.0  # between two signs of life for the other side
GONE_SECONDS = 10.0  # for a program there to end, and its connection
RESOLVE_SECONDS = 30
LOOK_SECONDS = 0.02  # between two looks whether the connection stands
MOST_GREETINGS = 1_000  # lines that a login shell may print first
MOST_RUNS = 4  # over one connection, with two sessions each: sshd accepts ten, by default
TEXT = {str, type(None)}
LOST = 128  # exit codes from here on: ssh itself was killed, or its connection broke (255)
PLAIN = re.compile(r"/[A-Za-z0-9_./-]{1,80}")  # a path that OpenSSH takes as one in a forwarding
OURS = (  # before what the operator configured: the connection asks nobody, and carries nothing else
    *("BatchMode=yes", "ControlMaster=yes", "ControlPersist=no", "ClearAllForwardings=yes", "ForwardAgent=no"),
    *("ForwardX11=no", "Tunnel=no", "PermitLocalCommand=no", "RemoteCommand=none", "ForkAfterAuthentication=no"),
    *(f"ConnectTimeout={CONNECT_SECONDS}", f"ServerAliveInterval={ALIVE_SECONDS}"),
    f"ServerAliveCountMax={ALIVE_MOST}",
)
OVER_MASTER = ("BatchMode=yes", "ControlMaster=no", "ProxyCommand=false")  # never by a connection of its own
KEYS = (  # what ssh says of them, until a person does something
    ("IDENTIFICATION HAS CHANGED", "its host key is not the one that is known; `ssh-keygen -R` forgets that one"),
    ("Host key verification failed", "its host key is not known; connect once yourself, and compare it"),
    ("Permission denied", "it takes none of your keys; one with a passphrase has to be in ssh-agent"),
)
AWAY = Fault(FaultKind.UNREACHABLE)


async def take(runner: Ssh, scene: Scene) -> Ended:
    """Run a turn. Raises RunnerFailed, and NOT_PERMITTED if a sandbox is required."""
    sandbox.check(runner)
    return await acp.recorded(runner, scene, _take, is_confined=False)


async def _take(launch: acp.Launch, key: str) -> Ended:
    runner, agent = launch.runner, launch.scene.agent
    assert isinstance(runner, Ssh)
    paths = (agent.cwd, *agent.write_paths)
    async with bus.served(launch.scratch, key) as server, running(runner, agent.cwd, paths, server) as there:
        try:
            return await acp.converse(launch, FarClient(there, launch.scene), there.program, there.bus)
        except RunnerFailed as failed:
            if (there.program.guardian.returncode or 0) < LOST:
                raise
            why = f"the connection to {runner.host} broke in the middle of the turn{_said(there.program)}"
            raise RunnerFailed(why, has_written=failed.has_written, is_lost=True) from None


class FarClient(PoolClient):
    """The client side of a turn on another machine: it opens no file and runs no program for the agent, because those
    here are not the agent's."""

    serves_files = False

    def __init__(self, there: There, scene: Scene) -> None:
        super().__init__(scene, Terminals(_no_program, {}), there.runner.max_iterations)
        self.there = there

    async def _judge(self, call: ToolCallUpdate) -> Judgement:
        named = paths_named(self.permissions, call)
        found = dict(zip(named, await self.there.resolve(named), strict=True)) if named else {}

        def real(path: str) -> str:
            if (resolved := found[path]) is None:
                raise ValueError(path)
            return resolved

        return judge(self.permissions, call, real)

    async def read_text_file(self, *_: Any, **__: Any) -> ReadTextFileResponse:
        raise RequestError.method_not_found("fs/read_text_file")

    async def write_text_file(self, *_: Any, **__: Any) -> WriteTextFileResponse:
        raise RequestError.method_not_found("fs/write_text_file")

    async def create_terminal(self, *_: Any, **__: Any) -> CreateTerminalResponse:
        raise RequestError.method_not_found("terminal/create")


def _no_program(command: Sequence[str], cwd: str) -> list[str]:
    raise RunnerFailed("no program of the agent runs here")


class Client(processes.Running):
    """OpenSSH's client, whose program on the other machine ends with its stdin."""

    def kill(self) -> None:
        """Let the program end."""
        self.stdin.close()

    async def end(self, grace: float = 0.0) -> int:
        """Wait until the program there has ended, and return its exit code; `grace` is what that takes at most."""
        self.stdin.close()
        unread = asyncio.create_task(self._discard())
        try:
            await asyncio.wait_for(self.guardian.wait(), GONE_SECONDS)
        except TimeoutError:
            pass  # the other machine is gone
        finally:
            unread.cancel()
            super().kill()
        return await super().end()


@dataclass
class There:
    """A program on another machine."""

    runner: Ssh
    master: str  # the socket of the connection
    program: Client
    scratch: str  # a directory there, which is removed with the program
    bus: Bus | None = None  # as the program reaches it
    resolving: asyncio.Lock = field(default_factory=asyncio.Lock)  # sshd limits the sessions of a connection

    async def resolve(self, paths: Sequence[str]) -> list[str | None]:
        """Return paths as they are there, with their symlinks resolved; None for what no file can have as its path.
        Raises RunnerFailed."""
        async with self.resolving:
            client = await _start(self.runner, self.master)
            try:
                async with asyncio.timeout(RESOLVE_SECONDS):
                    resolved = (await _greeted(self.runner, client, {"resolve": list(paths)})).get("paths")
            except TimeoutError:
                raise RunnerFailed(f"{self.runner.host} did not resolve a path within {RESOLVE_SECONDS} s") from None
            finally:
                await uninterrupted(client.end())
        if not isinstance(resolved, list) or len(resolved) != len(paths) or not {*map(type, resolved)} <= TEXT:
            raise RunnerFailed(f"{self.runner.host} did not resolve a path")
        return resolved


@contextlib.asynccontextmanager
async def running(runner: Ssh, cwd: str | None, paths: Sequence[str], server: Bus | None) -> AsyncIterator[There]:
    """Run the runner's program on its host within the block; nothing of it is left afterwards.

    It starts in `cwd`, or in a new directory of its own. None of `paths` may lead through a symlink. It reaches the bus
    of `server`. Raises RunnerFailed.
    """
    async with connected(runner) as master:
        client = await _start(runner, master)
        beating = asyncio.create_task(_beat(client))
        forwarded = ""
        try:
            given = {
                "command": runner.command,
                "env": {name: os.environ[name] for name in runner.env_from if name in os.environ} | runner.env,
                "cwd": cwd,
                "paths": list(paths),
                "files": {path.name: path.read_text(encoding="utf-8") for path in SHIPPED},
            }
            try:
                async with asyncio.timeout(START_SECONDS):
                    answer = await _greeted(runner, client, given)
                    scratch, python = answer.get("scratch"), str(answer.get("python"))
                    if not isinstance(scratch, str) or not PLAIN.fullmatch(scratch):
                        raise RunnerFailed(f"{runner.host} has no usual directory for temporary files")
                    there = There(runner, master, client, scratch)
                    if server is not None:
                        forwarded = f"{scratch}/{bus.SOCKET}:{server.socket}"
                        await _forward(runner, master, "forward", forwarded)
                        words = ("-I", "-S", f"{scratch}/{bus.RELAY.name}", f"{scratch}/{bus.SOCKET}")
                        there.bus = Bus(python, words, words[-1])
            except TimeoutError:
                raise RunnerFailed(f"{runner.host} did not start a program within {START_SECONDS} s") from None
            yield there
        finally:
            beating.cancel()
            await uninterrupted(_ended(runner, master, client, forwarded))


async def _ended(runner: Ssh, master: str, client: Client, forwarded: str) -> None:
    await client.end()
    if forwarded:
        with contextlib.suppress(RunnerFailed):  # the connection is gone, and the forwarding with it
            await _forward(runner, master, "cancel", forwarded)


async def _beat(client: Client) -> None:
    while True:
        await asyncio.sleep(BEAT_SECONDS)
        if not client.stdin.transport.get_write_buffer_size():
            client.stdin.write(b"\n")


async def _start(runner: Ssh, master: str) -> Client:
    """Start a client of a connection, which runs COMMAND. Raises RunnerFailed."""
    command = [*_ssh(runner, master, OVER_MASTER, alone=True), "-T", "--", runner.host, COMMAND]
    return await processes.start_as(Client, command, cwd=NEUTRAL, env=environment())


async def _greeted(runner: Ssh, client: Client, given: dict[str, Any]) -> dict[str, Any]:
    """Send what a client's program is given, and return its answer. Raises RunnerFailed."""
    mark = secrets.token_hex(8)
    order = {"source": FAR.read_text(encoding="utf-8"), "mark": mark, **given}
    line, answer = b"", None
    try:
        client.stdin.write(json.dumps(order).encode() + b"\n")
        await client.stdin.drain()
        for _ in range(MOST_GREETINGS):
            line = await client.stdout.readline()
            if not line or mark.encode() in line:
                break
        answer = json.loads(line or "null")
    except ConnectionError:
        line = b""
    except ValueError:  # a line that is too long, or no JSON
        pass
    if not line:
        raise await _why_silent(runner, client)
    if not isinstance(answer, dict) or answer.get("nexus") != mark:
        raise RunnerFailed(f"{runner.host} answers something else than a program of ours: what does its shell print?")
    if "error" in answer:
        raise RunnerFailed(f"on {runner.host}: {str(answer['error'])[: acp.QUOTED]}")
    return answer


async def _why_silent(runner: Ssh, client: Client) -> RunnerFailed:
    code, host = await client.end(), runner.host
    if code >= LOST:
        return RunnerFailed(f"the connection to {host} broke before the program started{_said(client)}", AWAY)
    why = f"could not start python3, with which programs are started (exit code {code})"
    if code == 127:
        why = "has no python3 on its PATH, which starts programs there"
    return RunnerFailed(f"{host} {why}{_said(client)}")


async def _forward(runner: Ssh, master: str, what: str, forwarded: str) -> None:
    """Forward a socket there to one here, or cancel that. Raises RunnerFailed."""
    command = [*_ssh(runner, master, OVER_MASTER, alone=True), "-O", what, "-R", forwarded, "--", runner.host]
    async with processes.running(command, cwd=NEUTRAL, env=environment(), stdin=processes.DEVNULL) as client:
        if await client.ended():
            await client.end()
            if "Control socket" in client.stderr.text:  # that of the connection, which is gone
                why = f"the connection to {runner.host} broke before the program started{_said(client)}"
                raise RunnerFailed(why, AWAY)
            raise RunnerFailed(
                f"{runner.host} forwards no socket to the bus: its sshd needs AllowStreamLocalForwarding{_said(client)}"
            )


def _ssh(runner: Ssh, master: str, options: Sequence[str], *, alone: bool = False) -> list[str]:
    """Return the beginning of a command line of OpenSSH's client; `alone`: it reads no configuration."""
    return [
        PROGRAM,
        *(("-F", "none") if alone else runner.ssh_options),
        "-S",
        master,
        *(word for option in options for word in ("-o", option)),
    ]


@dataclass
class Connection:
    """A connection to a host, for some of the runs there at a time."""

    users: int = 0
    opening: asyncio.Lock = field(default_factory=asyncio.Lock)
    program: processes.Running | None = None
    socket: str = ""

    @property
    def stands(self) -> bool:
        """Whether runs may use it."""
        return self.program is not None and self.program.guardian.returncode is None

    async def open(self, runner: Ssh) -> None:
        """Connect. Raises RunnerFailed."""
        await self.close()
        if shutil.which(PROGRAM) is None:
            raise RunnerFailed("there is no OpenSSH client (ssh) on this machine")
        directory = tempfile.mkdtemp(prefix="nexus-ssh-")  # short: a socket's path has at most 107 bytes
        self.socket = os.path.join(directory, "master")
        command = [*_ssh(runner, self.socket, OURS), "-N", "-T", "-a", "-x", "--", runner.host]
        env = environment("HOME", "SSH_AUTH_SOCK")
        try:
            self.program = await processes.start(
                command, cwd=NEUTRAL, env=env, stdin=processes.DEVNULL, scratch=directory
            )
            async with asyncio.timeout(START_SECONDS):
                while not Path(self.socket).exists():  # it comes when the host has let us in
                    if self.program.guardian.returncode is not None:
                        await self.program.end()
                        raise _unreachable(runner, self.program)
                    await asyncio.sleep(LOOK_SECONDS)
        except BaseException as error:
            shutil.rmtree(directory, ignore_errors=True)
            await uninterrupted(self.close())
            if isinstance(error, TimeoutError):
                raise RunnerFailed(f"{runner.host} did not let us in within {START_SECONDS} s", AWAY) from None
            raise

    async def close(self) -> None:
        """Disconnect."""
        program, self.program = self.program, None
        if program is not None:
            await program.end()


_connections: dict[tuple[str, str | None], list[Connection]] = {}


@contextlib.asynccontextmanager
async def connected(runner: Ssh) -> AsyncIterator[str]:
    """Yield the socket of a connection to the runner's host. Raises RunnerFailed."""
    known = _connections.setdefault((runner.host, runner.ssh_config), [])
    connection = next((each for each in known if each.users < MOST_RUNS), None)
    if connection is None:
        known.append(connection := Connection())
    connection.users += 1
    try:
        async with connection.opening:
            if not connection.stands:
                await connection.open(runner)
            socket = connection.socket
        yield socket
    finally:
        connection.users -= 1
        if not connection.users:
            known.remove(connection)
            await uninterrupted(connection.close())


def _unreachable(runner: Ssh, program: processes.Running) -> RunnerFailed:
    said = program.stderr.text
    hint = next((hint for sign, hint in KEYS if sign in said), "")
    fault = Fault(FaultKind.KEY) if hint else AWAY
    return RunnerFailed(f"{runner.host} cannot be reached by ssh{hint and f': {hint}'}{_said(program)}", fault)


def _said(program: processes.Running) -> str:
    said = program.stderr.text.strip()[-acp.QUOTED :]
    return f"; ssh said: {said}" if said else ""
