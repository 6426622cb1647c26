"""The hub's side of the relays: a socket in the home, where it serves each agent as a process of the agent's own
would."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import math
import socket
import stat
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any, NamedTuple, cast

from django.apps import apps
from django.conf import settings
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server
from mcp.shared.message import SessionMessage
from mcp_types import INTERNAL_ERROR, JSONRPCError, JSONRPCNotification, JSONRPCRequest, JSONRPCResponse
from pydantic import BaseModel, Field

from coordination.services import agent_limits
from mcp_bridge import choices, hook_queries
from mcp_bridge.choices import ENABLE, caller_of_process
from mcp_bridge.context import Context
from mcp_bridge.features import wire
from mcp_bridge.presence import connected
from mcp_bridge.recorded_calls import LOST, RelayedRequest, restore_states, states_of
from mcp_bridge.relay import (
    ANSWER_SECONDS,
    DIRECTORY,
    HEAD,
    LONGEST_LINE,
    MOST_SLOTS,
    PROTOCOL,
    REQUEST,
    SOCKET,
    TOO_LARGE,
    address,
    namespace,
    user_at,
)
from mcp_bridge.remote import GO, HOOK
from mcp_bridge.server import build_server
from mcp_bridge.stdio import Answered, Pipe, bounded
from mcp_bridge.subscriptions import ResourceBus
from nexus.core.access import holder_of
from nexus.core.config import TABLE, CoreSettings, written
from nexus.core.fairness import CallSlot
from nexus.core.files import own_user
from nexus.core.operations.caller import Caller
from nexus.core.operations.errors import Code, NexusError
from nexus.core.operations.registry import TOOLSETS, Choice, Operation, default
from nexus.core.operations.replies import Outcome, Reply
from nexus.core.size_limits import most_values, values_in
from nexus.core.waiting import AUTHENTICATION, in_thread

log = logging.getLogger(__name__)

MOST_CONNECTIONS = 2000  # each costs an open file and some memory
BACKLOG = 1000  # connections that wait to be accepted
PAUSE_SECONDS = 1.0  # before the next attempt to accept where it failed
QUIET_SECONDS = 60.0  # without a failure, before one is logged again
LONGEST_HELLO = 2**20  # bytes, with the state from an earlier hub
DRAIN_SECONDS = 10  # for the calls under way to be answered when the hub ends
RESTORING = "nexus-restores:"  # prefix of the ids of requests that are repeated from an earlier hub
GIVEN = ("flag", "environment")
SHORT = ThreadPoolExecutor(2, thread_name_prefix="nexus-hook")
Ready = Callable[[], dict[str, Any]]  # answers a hook; uses the store


class Elsewhere(Exception):
    """The process must serve itself; the text says why."""


class ConnectionState(BaseModel):
    """What an earlier hub knew of a connection: the client's opening messages, and what apps stored for it."""

    opened: list[dict[str, Any]] = []
    apps: dict[str, Any] = {}


class Hello(BaseModel):
    """The first line of a relay, which describes its process."""

    apps: list[str]
    process: int
    random: Annotated[str, Field(pattern=r"\A[0-9a-f]{8}\z")]
    namespace: str | None
    cwd: str | None
    place: str
    settings: dict[str, str]
    key: str | None
    agent: str | None = None  # an earlier relay does not say it
    state: ConnectionState = ConnectionState()
    command: list[str] = []  # what a hook asks, instead of serving a client

    def connection(self, kind: str) -> str:
        """Return the connection's name, as the process itself would make it."""
        return f"{kind}:{self.process}-{self.random}"


class Head(BaseModel):
    """What a relay writes before a request that is recorded."""

    id: int | str
    slot: Annotated[int, Field(ge=0, lt=MOST_SLOTS)]
    key: Annotated[str, Field(pattern=r"\A[0-9a-f]{32}\z")]
    repeated: bool


class Process(NamedTuple):
    """The process of an agent that the hub serves."""

    caller: Caller
    choice: Choice
    line: str  # in which its calls wait for slots
    opened: list[dict[str, Any]]  # the client's opening messages to an earlier hub


async def serve() -> None:
    """Serve relays until cancelled; then answer the calls under way, and tell each relay which lines to send again."""
    home = CoreSettings.current().home
    try:
        listening = _listen(home)  # first: a process that starts when the hub is ready must find the address
    except OSError as error:
        log.warning("Agents on stdio serve themselves: there is no socket in %s (%s).", home, error.strerror)
        return
    listening.setblocking(False)
    relays = Relays()
    try:
        await _accept(listening, relays)
    finally:
        listening.close()
        with contextlib.suppress(OSError):
            (home / DIRECTORY / SOCKET).unlink()
        await relays.end()


async def _accept(listening: socket.socket, relays: Relays) -> None:
    """Accept connections until cancelled. Where no file can be opened, asyncio's own server logs a thousand attempts a
    second."""
    loop = asyncio.get_running_loop()
    quiet_until = -math.inf
    while True:
        try:
            connection, _ = await loop.sock_accept(listening)
        except ConnectionError:  # it left
            continue
        except OSError as error:
            if loop.time() >= quiet_until:
                log.warning("Agents on stdio cannot connect to the hub now: %s.", error.strerror)
            quiet_until = loop.time() + QUIET_SECONDS
            await asyncio.sleep(PAUSE_SECONDS)
            continue
        reader = asyncio.StreamReader(LONGEST_LINE + HEAD)
        protocol = partial(asyncio.StreamReaderProtocol, reader, relays.connected)
        await loop.connect_accepted_socket(protocol, connection)


def _listen(home: Path) -> socket.socket:
    """Return the listening socket. The holder of the home's lock may replace what is there: its hub is dead. Raises
    OSError."""
    directory = home / DIRECTORY
    directory.mkdir(mode=0o700, exist_ok=True)
    found = directory.lstat()
    if not stat.S_ISDIR(found.st_mode) or own_user() not in (None, found.st_uid):
        raise PermissionError(0, f"{directory} is no directory of this user")
    directory.chmod(0o700)
    (directory / SOCKET).unlink(missing_ok=True)
    if not hasattr(socket, "AF_UNIX"):
        raise OSError(0, "this system has none")
    listening = socket.socket(socket.AF_UNIX)
    try:
        with address(home) as path:
            listening.bind(path)
        (home / DIRECTORY / SOCKET).chmod(0o600)
        listening.listen(BACKLOG)
    except BaseException:
        listening.close()
        raise
    return listening


class Relays:
    """The connected relays."""

    def __init__(self) -> None:
        self._bus = ResourceBus()
        self._silent: dict[asyncio.Task[None], None] = {}  # those that have not said yet who they are, oldest first
        self._serving: dict[asyncio.Task[None], RelayConnection] = {}
        self._ending = False

    async def connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one relay until it leaves or the hub ends."""
        if len(self._silent) >= MOST_CONNECTIONS:  # an agent says who it is at once: the oldest is none
            next(iter(self._silent)).cancel()
        task = cast("asyncio.Task[None]", asyncio.current_task())
        self._silent[task] = None
        try:
            if (process := await self._introduced(reader, writer)) is not None and not self._ending:
                del self._silent[task]
                connection = self._serving[task] = RelayConnection(process, reader, writer, self._bus)
                await connection.serve()
        except (ConnectionError, asyncio.CancelledError):
            pass  # it left, or the hub ends
        finally:
            self._silent.pop(task, None)
            self._serving.pop(task, None)
            writer.close()

    async def end(self) -> None:
        """Let each connection answer its calls under way, and close."""
        self._ending = True
        for task in self._silent:
            task.cancel()
        for connection in self._serving.values():
            connection.end()
        if left := [*self._silent, *self._serving]:
            _, late = await asyncio.wait(left, timeout=DRAIN_SECONDS + 1)
            for task in late:
                task.cancel()

    async def _introduced(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> Process | None:
        """Return the process that connects, after it got the welcome; None where it is refused."""
        process, user = user_at(writer.get_extra_info("socket"))
        if user not in (None, own_user()):
            return None
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                line = await reader.readline()  # first: closing with unread data would drop the hub's answer
            if len(self._serving) >= MOST_CONNECTIONS:
                raise NexusError(
                    Code.CONFIG_ERROR,
                    f"{MOST_CONNECTIONS} agents on stdio are connected to the hub, and it accepts no more. Close some, "
                    "or start this one with NEXUS_STANDALONE=1.",
                )
            hello = _parsed(line)
            if hello.command:
                run = await in_thread(SHORT, partial(_understood, hello, process))
                await _command(run, reader, writer)
                return None
            introduced = await in_thread(AUTHENTICATION, partial(_introduce, hello, process))
            _say(writer, nexus="welcome", **_welcome(introduced.choice[0].reply))
            return introduced
        except Elsewhere as error:
            refused = NexusError(Code.CONFIG_ERROR, f"{error} Start this client again.")
            _say(writer, nexus="elsewhere", message=str(error), answer=_answer(refused, default()[0].reply))
        except NexusError as error:
            answer = _answer(error, default()[0].reply)
            _say(writer, nexus="refused", code=error.code.value, message=error.message, answer=answer)
        except (TimeoutError, ValueError):
            pass  # not a relay
        await writer.drain()
        return None


async def _command(run: Ready, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answer a hook once its process has confirmed that the hub answers it."""
    _say(writer, nexus="welcome")
    if await reader.readline() == GO:
        _say(writer, **await in_thread(SHORT, run))


def _parsed(line: bytes) -> Hello:
    """Parse the first line of a relay. Raises ValueError for anything else, Elsewhere for a relay of another
    version."""
    if not line.endswith(b"\n") or len(line) > LONGEST_HELLO or values_in(line) > most_values():
        raise ValueError
    try:
        hello = json.loads(line)
    except RecursionError:
        raise ValueError from None
    if not isinstance(hello, dict) or hello.get("nexus") != "hello":
        raise ValueError
    if hello.get("protocol") != PROTOCOL:
        raise Elsewhere("The hub is of another version of Nexus.")
    return Hello.model_validate(hello, strict=True)


def _introduce(hello: Hello, peer: int | None) -> Process:
    """Return the process of a relay. Reads the store. Raises Elsewhere, CONFIG_ERROR as the process itself would, and
    ValueError for a state that no hub wrote."""
    _check_same(hello, peer)
    caller = caller_of_process(
        hello.key,
        named=hello.agent,
        transport="relay",
        connection=hello.connection("stdio"),
        cwd=hello.cwd,
    )
    choice = choices.from_process(caller.agent_id, hello.settings.get("toolsets"))
    restore_states(hello.connection("stdio"), hello.state.apps)
    line = holder_of(hello.key) if hello.key else hello.connection("stdio")
    return Process(caller, choice, line, hello.state.opened)


def _understood(hello: Hello, peer: int | None) -> Ready:
    """Return what a process wants to have run. Raises Elsewhere, and ValueError for a malformed query of a hook."""
    _check_same(hello, peer)
    name, *words = hello.command
    if name != HOOK:
        raise Elsewhere("The hub answers hooks only.")
    question = hook_queries.Question.model_validate_json("".join(words))
    return partial(hook_queries.answer_hook, question, hello.connection("hook"))


def _check_same(hello: Hello, peer: int | None) -> None:
    """Check that the hub's settings are those of the process. Raises Elsewhere."""
    if not {config.name for config in apps.get_app_configs()}.issuperset(hello.apps):
        raise Elsewhere("The hub is another installation of Nexus.")
    if hello.namespace != namespace() or peer not in (None, hello.process):
        raise Elsewhere("The hub sees other files than this process.")
    for name, text in hello.settings.items():
        if name != "toolsets" and not _is_same(name, text):
            raise Elsewhere(f"The hub has another {name} than this process was given.")
    if hello.place != CoreSettings.current().location:
        raise Elsewhere("The hub has another store.")


def _is_same(name: str, text: str) -> bool:
    """Return whether a setting of a process is also the hub's, and stays so as long as the hub lives."""
    if name not in TABLE or written(getattr(settings.NEXUS, name)) != text:
        return False
    return not TABLE[name].live or settings.NEXUS_SOURCES[name] in GIVEN


def _welcome(reply: Reply) -> dict[str, Any]:
    away = NexusError(
        Code.DB_ERROR, "The hub is away, and this was not done. Send the same call again.", {"retryable": True}
    )
    answers = {"away": _answer(away, reply), "lost": _answer(LOST, reply)}
    return {**answers, "repeatable": _repeatable(), "recorded": _tools_that(lambda operation: operation.is_recorded)}


def _answer(error: NexusError, reply: Reply) -> dict[str, Any]:
    """Return the answers to a call of a tool and to another request that carry an error."""
    data = {"code": error.code.value, **error.details}
    return {
        "call": wire(reply, Outcome(error=error)),
        "other": {"code": INTERNAL_ERROR, "message": error.message, "data": data},
    }


def _repeatable() -> list[str]:
    """Return the tools that a relay may call again: a second call has no further effect."""
    return [*_tools_that(lambda operation: operation.read_only or operation.idempotent), ENABLE]


def _tools_that(hold: Callable[[Operation[Any]], bool]) -> list[str]:
    """Return the names of tools for which `hold` is true in every toolset that has one of that name."""
    every = [operation for toolset in TOOLSETS.values() for operation in toolset.tools]
    return sorted(
        {operation.name for operation in every} - {operation.name for operation in every if not hold(operation)}
    )


def _say(writer: asyncio.StreamWriter, **message: Any) -> None:
    writer.write(json.dumps(message, separators=(",", ":")).encode() + b"\n")


class RelayConnection:
    """One relay that is served. Between its lines and the SDK it tracks the requests under way, and the connection's
    state, which it sends to the relay for the next hub."""

    def __init__(
        self, process: Process, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, bus: ResourceBus
    ) -> None:
        self._caller, self._choice, self._line, self._bus = process.caller, process.choice, process.line, bus
        self._reader, loop = reader, asyncio.get_running_loop()
        # A task of its own for the reader: whatever ends it would also end the answers.
        self._writer = asyncio.StreamWriter(writer.transport, writer.transport.get_protocol(), None, loop)
        self._taken = self._seen = 0  # lines that were read, and messages that the SDK got
        self._ending = False
        self._open: dict[Any, JSONRPCRequest] = {}  # unanswered requests
        self._recorded: dict[Any, RelayedRequest] = {}  # by id, those that are recorded
        self._settled = asyncio.Event()  # set when one of these has changed
        self._restored = process.opened
        self._opened: list[dict[str, Any]] = []  # the messages that created the connection's state
        self._sent_state: dict[str, Any] = {"opened": [], "apps": {}}

    async def serve(self) -> None:
        """Serve it until it leaves, or `end` is called and the requests under way are answered."""
        server = build_server(self._caller_of, lambda _: self._choice, self._slot, self._bus)
        with connected(self._caller.connection, self._caller.agent_id):
            await self._run(server)
        if self._ending:
            _say(self._writer, nexus="bye", taken=self._taken)
            await self._writer.drain()

    async def _run(self, server: Server[Any]) -> None:
        async with stdio_server(cast(Any, self._lines()), cast(Any, Pipe(self._writer))) as (read, write):
            incoming = Answered(_Incoming(read, self), write, self._choice[0].reply)
            outgoing = _Outgoing(write, self)
            await server.run(cast(Any, incoming), cast(Any, outgoing), server.create_initialization_options())

    def end(self) -> None:
        """Take no more lines."""
        self._ending = True
        self._reader.set_exception(_Ending())

    def came(self, item: SessionMessage | Exception) -> None:
        """Record a message of the client, or the error of its line."""
        self._seen += 1
        self._settled.set()
        message = item.message if isinstance(item, SessionMessage) else None
        if isinstance(message, JSONRPCRequest):
            self._open[message.id] = message
        elif isinstance(message, JSONRPCNotification) and message.method == "notifications/cancelled":
            cancelled = (message.params or {}).get("requestId")  # it gets no answer
            self._open.pop(cancelled, None)
            self._recorded.pop(cancelled, None)
        elif isinstance(message, JSONRPCNotification) and message.method == "notifications/initialized":
            self._opened.append(_as_json(message))

    def answers(self, answer: JSONRPCResponse | JSONRPCError) -> bool:
        """Record an answer; return whether it goes to the client, and does not answer a restored message."""
        self._recorded.pop(answer.id, None)
        request = self._open.get(answer.id)
        if request is not None and isinstance(answer, JSONRPCResponse):
            self._note(request, answer.result)
        if _is_restored(answer.id):
            return False
        state = {"opened": list(self._opened), "apps": states_of(self._caller.connection or "")}
        if state != self._sent_state:  # before the answer, so that a relay with the answer also has the state
            self._sent_state = state
            _say(self._writer, nexus="state", state=state)
        return True

    def answered(self, answer: JSONRPCResponse | JSONRPCError) -> None:
        """Record that an answer was sent, and wake what waits for that. Waking it earlier could end the sender."""
        self._open.pop(answer.id, None)
        self._settled.set()

    def _note(self, request: JSONRPCRequest, result: Any) -> None:
        """Store a successful request that must be repeated to the next hub."""
        params = request.params or {}
        if request.method in ("resources/subscribe", "resources/unsubscribe"):
            self._opened = [
                each
                for each in self._opened
                if each["method"] != "resources/subscribe" or each["params"].get("uri") != params.get("uri")
            ]
        enabled = request.method == "tools/call" and params.get("name") == ENABLE and not result.get("isError")
        if request.method in ("initialize", "resources/subscribe") or (enabled and params.get("arguments")):
            self._opened.append(_as_json(request))

    async def _lines(self) -> AsyncIterator[bytes]:
        """Yield the messages for an earlier hub, and once they are answered, the client's lines."""
        before = len(self._restored)
        for number, message in enumerate(self._restored):
            named = {"id": f"{RESTORING}{number}"} if "id" in message else {}
            yield json.dumps({**message, **named}).encode()
        await self._until(lambda: self._seen == before and not self._open)
        try:
            async for line in bounded(self._reader):
                if not line.endswith((b"\n", TOO_LARGE)):
                    return  # an incomplete line
                self._taken += 1
                yield self._read(line.removesuffix(b"\n"))
                # Calls that wait for slots and as many that have them: one more must be refused.
                await self._until(lambda: len(self._open) < 2 * agent_limits.MOST_WAITING)
        except ConnectionError:  # it left while the hub wrote to it
            return
        except _Ending:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(DRAIN_SECONDS):
                    await self._until(lambda: self._seen == before + self._taken and not self._open)

    def _read(self, line: bytes) -> bytes:
        """Return a line of the client, without the head that its relay gave it."""
        if not line.startswith(REQUEST):
            return line
        head, _, rest = line.partition(b"\t")
        try:
            read = Head.model_validate_json(head, strict=True)
        except ValueError:
            return line  # no relay wrote it: it is answered as malformed
        self._recorded[read.id] = RelayedRequest(self._caller, read.slot, read.key, repeated=read.repeated)
        return rest

    def _caller_of(self, ctx: Context) -> Caller:
        request = self._recorded.get(ctx.request_id)
        return self._caller if request is None else replace(self._caller, request=request)

    async def _until(self, reached: Callable[[], bool]) -> None:
        while not reached():
            self._settled.clear()
            await self._settled.wait()

    def _slot(self, ctx: Any) -> CallSlot:
        return agent_limits.slot_of(self._line)


class _Ending(Exception):
    """The hub ends."""


class _Incoming:
    """The SDK's stream of messages from a client, observed by its connection."""

    def __init__(self, read: Any, connection: RelayConnection) -> None:
        self._read, self._connection = read, connection

    async def __aiter__(self) -> AsyncIterator[SessionMessage | Exception]:
        async for item in self._read:
            self._connection.came(item)
            yield item

    async def aclose(self) -> None:
        await self._read.aclose()


class _Outgoing:
    """The SDK's stream of messages to a client, observed by its connection."""

    def __init__(self, write: Any, connection: RelayConnection) -> None:
        self._write, self._connection = write, connection

    async def send(self, item: SessionMessage) -> None:
        message = item.message
        if not isinstance(message, JSONRPCResponse | JSONRPCError):
            await self._write.send(item)
            return
        try:
            if self._connection.answers(message):
                await self._write.send(item)
        finally:
            self._connection.answered(message)

    async def aclose(self) -> None:
        await self._write.aclose()

    async def __aenter__(self) -> _Outgoing:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.aclose()


def _is_restored(request_id: Any) -> bool:
    return isinstance(request_id, str) and request_id.startswith(RESTORING)


def _as_json(message: JSONRPCRequest | JSONRPCNotification) -> dict[str, Any]:
    message_data: dict[str, Any] = message.model_dump(mode="json", by_alias=True, exclude_unset=True)
    return message_data
