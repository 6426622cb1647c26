"""`nexus runmcp` where a hub serves the home: it passes lines between its client and the hub's socket.

Standard library only: every agent has such a process, and each import costs memory and time.
docs/explanation/architecture.md explains what is sent again when the hub restarts.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import select
import signal
import socket
import stat
import sys
import time
from collections import deque
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

from nexus.core.config import TABLE, TRUE, Resolved, written
from nexus.core.files import network_kind, own_user
from nexus.core.time_limit import OutOfTime

PROTOCOL = 1  # of relay and hub; a relay with another one serves itself
STANDALONE, API_KEY, AGENT = "NEXUS_STANDALONE", "NEXUS_API_KEY", "NEXUS_AGENT_ID"
DIRECTORY, SOCKET = "run", "mcp.sock"  # in the home
LONGEST_ADDRESS = 100  # bytes of a socket's path; systems allow 103 to 107
CONTROL = b'{"nexus":'  # starts the hub's own lines; messages of MCP start differently

LONGEST_LINE = 4 * 2**20  # bytes of a client's message, as for a request over HTTP
LONGEST_ANSWER = 256 * 2**20  # bytes of a line of the hub
HEAD = 4096  # bytes of a line that is too large: enough to find its request id
TOO_LARGE = b"\x01too large"  # ends the head of such a line; well-formed JSON cannot end with it

ANSWER_SECONDS = 10.0  # for the hub to answer the first line
AWAY_SECONDS = 20.0  # a call waits this long for a hub that is away
PAUSES = 0.05, 1.0  # seconds between attempts to connect: the first, and the longest
PIECE = 65_536  # bytes read at once
MOST_HELD = 1 << 20  # bytes buffered for one side, above which the other side is not read
MOST_NOTICES = 100  # notifications that wait for a hub
MOST_SLOTS = 1000  # writes under way, above which a further one is not sent again
MOST_KEPT = 16 * 2**20  # bytes of unanswered requests, above which lines are not stored to be sent again

REQUEST = b'{"nexus":"request",'  # starts the head of a write: JSON that ends at a tab, with the request's key
REPEATABLE = frozenset(  # methods that change only the connection; the hub names the repeatable tools for `tools/call`
    (
        *("ping", "initialize", "server/discover", "logging/setLevel", "completion/complete", "tasks/get"),
        *("tools/list", "prompts/list", "prompts/get"),
        *("resources/list", "resources/templates/list", "resources/read"),
        *("resources/subscribe", "resources/unsubscribe", "subscriptions/listen"),
    )
)
ANSWERED = re.compile(rb'\{"jsonrpc":"2\.0","id":("(?:[^"\\]|\\.)*"|-?[0-9]+),"(?:result|error)"')
GREETING = (  # for a person who starts it by hand
    "[nexus] This speaks MCP on stdin and stdout: it is a coding client that starts it, not a person.\n"
    "[nexus] To connect one: nexus connect --client claude-code (or another; nexus connect --help). Ctrl-C ends this.\n"
)


class NoHub(Exception):
    """No hub accepts this process; the text says why, or is empty where that is ordinary."""


class OpenRequest(NamedTuple):
    """A request without an answer: its line, its number among the lines of this connection, whether it may be sent
    again, whether it is a call of a tool, and how long it waits for a hub (seconds of the monotonic clock). Of a write
    that the hub records: its slot and its key, and whether a hub may have done it already."""

    line: bytes | None  # None: too much is stored already
    number: int  # 0: not sent
    repeatable: bool
    is_call: bool
    until: float
    slot: int | None
    key: str
    repeated: bool = False


def relay(resolved: Resolved, apps: list[str]) -> None:
    """Pass on lines until the client ends, then end the process; return where this process must serve itself."""
    if serves_itself() or os.name == "nt":  # `select` watches no pipes there
        return
    hello = hello_of(resolved, apps)
    try:
        connection, welcome, rest = connect(resolved.settings.home, hello, None)
    except NoHub as error:
        if str(error):
            _warn(f"This process serves itself: {error}")
        return
    if welcome["nexus"] == "elsewhere":
        _warn(f"This process serves itself: {welcome['message']}")
        return
    if welcome["nexus"] == "refused":
        sys.exit(f"[nexus] {welcome['code']}: {welcome['message']}")
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: os._exit(0))
    if sys.stdin.isatty():
        sys.stderr.write(GREETING)
        sys.stderr.flush()
    Relay(resolved.settings.home, hello, connection, welcome, rest).run()


def _warn(text: str) -> None:
    with contextlib.suppress(OSError):
        sys.stderr.write(f"[nexus] {text}\n")
        sys.stderr.flush()


def serves_itself() -> bool:
    """Return whether this process must not look for a hub."""
    return os.environ.get(STANDALONE, "").lower() in TRUE


def hello_of(resolved: Resolved, apps: list[str]) -> dict[str, Any]:
    """Return what the hub must know of this process."""
    given = {name: source for name, source in resolved.sources.items() if source != "default" and name != "home"}
    try:
        cwd = os.getcwd()  # noqa: PTH109  # pathlib knows it no better
    except OSError:
        cwd = None
    return {
        "nexus": "hello",
        "protocol": PROTOCOL,
        "apps": apps,
        "process": os.getpid(),
        "random": os.urandom(4).hex(),
        "namespace": namespace(),
        "cwd": cwd,
        "place": resolved.settings.location,
        "settings": {name: written(getattr(resolved.settings, name)) for name in given if name in TABLE},
        "key": os.environ.get(API_KEY),
        "agent": os.environ.get(AGENT),
    }


def namespace() -> str | None:
    """Return the identity of this process's file tree; None where the system has only one."""
    try:
        return os.readlink("/proc/self/ns/mnt")  # noqa: PTH115
    except OSError:
        return None


@contextlib.contextmanager
def address(home: Path) -> Iterator[str]:
    """Yield the address of a home's socket. Raises OSError where its path is too long for this system."""
    path = home / DIRECTORY / SOCKET
    if len(os.fsencode(path)) <= LONGEST_ADDRESS:
        yield str(path)
        return
    opened = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        short = f"/proc/self/fd/{opened}"
        os.stat(short)  # noqa: PTH116
        yield f"{short}/{SOCKET}"
    finally:
        os.close(opened)


def user_at(connection: socket.socket) -> tuple[int | None, int | None]:
    """Return the process and the user at the other end, if the system reports them."""
    if not hasattr(socket, "SO_PEERCRED"):
        return None, None
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
    process, user = (int.from_bytes(credentials[start : start + 4], sys.byteorder) for start in (0, 4))
    return process, user


def connect(
    home: Path, hello: Mapping[str, Any], state: bytes | None, seconds: float = ANSWER_SECONDS
) -> tuple[socket.socket, Any, bytes]:
    """Return a connection to the hub of a home, the hub's first line, and what followed it. Raises NoHub, and
    OutOfTime inside a `time_limit`."""
    line = json.dumps(hello, separators=(",", ":")).encode()
    if state is not None:  # as the hub sent it
        line = line[:-1] + b',"state":' + state + b"}"
    connection: socket.socket | None = None
    try:
        connection = _reach(home, seconds)
        if user_at(connection)[1] not in (None, own_user()):
            raise NoHub("another user's process listens at the socket of the hub.")
        connection.sendall(line + b"\n")
        received = b""
        while b"\n" not in received:
            if not (piece := connection.recv(PIECE)) or len(received) > MOST_HELD:
                raise NoHub("the hub ended before it answered.")
            received += piece
    except BaseException as error:
        if connection is not None:
            connection.close()
        if isinstance(error, OutOfTime):
            raise
        if isinstance(error, TimeoutError):
            raise NoHub(f"the hub did not answer within {seconds:.0f} s.") from None
        if isinstance(error, OSError):  # there is no socket, or nobody listens any more
            raise NoHub(_elsewhere(home) if isinstance(error, ConnectionRefusedError) else "") from None
        raise
    first, _, rest = received.partition(b"\n")
    try:
        welcome = json.loads(first)
    except (ValueError, RecursionError):
        connection.close()
        raise NoHub("what listens at the socket of the hub is no hub.") from None
    connection.settimeout(None)
    return connection, welcome, rest


def _elsewhere(home: Path) -> str:
    """Return why nobody may listen at an existing socket; empty where its hub just ended."""
    kind = network_kind(home)
    if kind is None:
        return ""
    return (
        f"nobody on this machine listens at the hub's socket. {home} is on a network file system ({kind}), and a hub "
        "on another machine cannot be reached through it."
    )


def _reach(home: Path, seconds: float) -> socket.socket:
    """Return a connection to what listens for the relays of a home. Raises OSError."""
    if not hasattr(socket, "AF_UNIX"):
        raise FileNotFoundError
    connection = socket.socket(socket.AF_UNIX)
    try:
        connection.settimeout(seconds)
        until = time.monotonic() + seconds
        while True:
            try:
                with address(home) as path:
                    connection.connect(path)
                return connection
            except BlockingIOError:  # too many connect at once
                if time.monotonic() > until:
                    raise TimeoutError from None
                time.sleep(0.02)
    except BaseException:
        connection.close()
        raise


class LineSplitter:
    """Splits bytes into lines of at most `longest` bytes; of a longer one it returns the head, marked as too large."""

    def __init__(self, longest: int) -> None:
        self.held = bytearray()
        self._longest = longest
        self._head: bytes | None = None  # of the line that is being skipped

    def complete_lines(self, data: bytes) -> Iterator[bytes]:
        """Yield the lines that `data` completes, without their ends."""
        first, *others = data.split(b"\n")
        self._add(first)
        for piece in others:
            line = bytes(self.held) if self._head is None else self._head + TOO_LARGE
            self.held.clear()
            self._head = None
            self._add(piece)
            yield line

    def _add(self, piece: bytes) -> None:
        if self._head is not None:
            return
        self.held += piece
        if len(self.held) > self._longest:
            self._head = bytes(self.held[:HEAD])
            self.held.clear()


class Relay:
    """One client and the hub, which may end and come back."""

    def __init__(self, home: Path, hello: Mapping[str, Any], hub: socket.socket, welcome: Any, rest: bytes) -> None:
        self._home, self._hello = home, hello
        self._hub: socket.socket | None = None
        self._state: bytes | None = None  # what a new hub must know of this connection, from the last one
        self._sent: dict[Any, OpenRequest] = {}  # unanswered requests by id, oldest first
        self._kept = 0  # bytes of their lines
        self._notices: list[bytes] = []  # notifications for which there was no hub
        self._outward: deque[memoryview] = deque()  # lines on their way to the hub
        self._owed = 0  # their length in bytes
        self._lines = 0  # lines sent to this hub
        self._taken: int | None = None  # of these, the lines that it processed before it ended in order
        self._inward = bytearray()  # on its way to the client
        self._stdin, self._from_hub = LineSplitter(LONGEST_LINE), LineSplitter(LONGEST_ANSWER)
        self._ended = False  # the client has closed its end
        self._pause, self._next = PAUSES[0], 0.0
        self._free_slots: list[int] = []  # no request has them; the slot of a cancelled one is not used again
        self._slots = 0  # how many there are
        self._pipes = [number for number in (0, 1) if _is_pipe(number)]
        for number in self._pipes:
            os.set_blocking(number, False)
        # reported as readable when its reader is gone
        self._watched = [1] if stat.S_ISFIFO(os.fstat(1).st_mode) else []
        self._attach(hub, welcome, rest)

    def run(self) -> NoReturn:
        """Pass on lines until the client closes a pipe."""
        while True:
            self._look_after_hub()
            hub = self._hub
            reading: list[Any] = [*self._watched]
            if not self._ended and self._owed < MOST_HELD and (hub or self._kept < MOST_KEPT):
                reading.append(0)
            if hub and len(self._inward) < MOST_HELD:
                reading.append(hub)
            writing: list[Any] = [hub] if hub and self._outward else []
            if self._inward:
                writing.append(1)
            readable, writable, _ = select.select(reading, writing, [], self._seconds())
            if 1 in readable:
                os._exit(0)
            if 1 in writable:
                self._write()
            if hub in writable:
                self._send()
            if 0 in readable:
                self._read()
            if hub is not None and hub is self._hub and hub in readable:
                self._receive(hub)

    def _seconds(self) -> float | None:
        """Return how long to wait for the next event."""
        if self._hub is not None:
            return None
        soonest = min((sent.until for sent in self._sent.values()), default=self._next)
        return max(0.0, min(self._next, soonest) - time.monotonic())

    # the client

    def _read(self) -> None:
        try:
            data = os.read(0, PIECE)
        except BlockingIOError:
            return
        if data:
            for line in self._stdin.complete_lines(data):
                self._take(line)
            return
        self._ended = True
        for line in self._stdin.complete_lines(b"\n") if self._stdin.held else ():
            self._take(line)
        if self._hub is None:
            os._exit(0)
        self._finish()

    def _finish(self) -> None:
        """Tell the hub that the client sends nothing more, once it has received everything."""
        if self._hub is not None and self._ended and not self._outward:
            with contextlib.suppress(OSError):
                self._hub.shutdown(socket.SHUT_WR)

    def _take(self, line: bytes) -> None:
        """Handle a line of the client."""
        try:
            message = json.loads(line)
        except (ValueError, RecursionError):
            message = None  # the hub answers it
        method = message.get("method") if isinstance(message, dict) else None
        key = message.get("id") if isinstance(method, str) else None
        params = message.get("params") if isinstance(method, str) else None
        params = params if isinstance(params, dict) else {}
        if isinstance(key, int | str):
            is_call = method == "tools/call"
            name = params.get("name")
            repeatable = isinstance(name, str) and name in self._repeatable if is_call else method in REPEATABLE
            recorded = is_call and isinstance(name, str) and name in self._recorded
            self._keep(key, line, repeatable, is_call, self._slot() if recorded else None)
            if self._hub is not None:
                self._put(key)
            return
        if method == "notifications/cancelled" and isinstance(params.get("requestId"), int | str):
            self._forget(params["requestId"])
        if self._hub is not None:
            self._push(line)
        elif len(self._notices) < MOST_NOTICES:
            self._notices.append(line)

    def _slot(self) -> int | None:
        """Return a slot that no request has."""
        if self._free_slots:
            return self._free_slots.pop()
        if self._slots == MOST_SLOTS:
            return None
        self._slots += 1
        return self._slots - 1

    def _keep(self, key: int | str, line: bytes, repeatable: bool, is_call: bool, slot: int | None) -> None:
        self._forget(key)
        self._kept += len(line)
        until = time.monotonic() + AWAY_SECONDS
        self._sent[key] = OpenRequest(line, 0, repeatable, is_call, until, slot, os.urandom(16).hex())

    def _put(self, key: int | str) -> None:
        """Send a stored request."""
        sent = self._sent[key]
        assert sent.line is not None
        head = b""
        if sent.slot is not None and self._recorded:
            rest = {"id": key, "slot": sent.slot, "key": sent.key, "repeated": sent.repeated}
            head = REQUEST + json.dumps(rest, separators=(",", ":"))[1:].encode() + b"\t"
        self._push(head + sent.line)
        self._sent[key] = sent._replace(number=self._lines)
        if self._kept > MOST_KEPT:
            self._kept -= len(sent.line)
            self._sent[key] = self._sent[key]._replace(line=None)

    def _push(self, line: bytes) -> None:
        self._outward.append(memoryview(line + b"\n"))
        self._owed += len(line) + 1
        self._lines += 1

    def _forget(self, key: int | str) -> OpenRequest | None:
        sent = self._sent.pop(key, None)
        if sent is not None:
            self._kept -= len(sent.line or b"")
        return sent

    def _write(self) -> None:
        try:
            count = os.write(1, self._inward if 1 in self._pipes else bytes(self._inward[:PIECE]))
        except BlockingIOError:
            return
        except OSError:  # there is no reader
            os._exit(0)
        del self._inward[:count]

    def _answer(self, key: int | str, sent: OpenRequest, answers: Mapping[str, Any]) -> None:
        """Answer a request for the hub, which is gone, in the hub's form."""
        self._free(sent)
        body = {"result": answers["call"]} if sent.is_call else {"error": answers["other"]}
        self._inward += json.dumps({"jsonrpc": "2.0", "id": key, **body}).encode() + b"\n"

    def _free(self, sent: OpenRequest | None) -> None:
        """Let another request have the slot of one that the hub no longer works at."""
        if sent is not None and sent.slot is not None:
            self._free_slots.append(sent.slot)

    # the hub

    def _attach(self, hub: socket.socket, welcome: Any, rest: bytes) -> None:
        self._hub, self._taken, self._lines = hub, None, 0
        self._from_hub = LineSplitter(LONGEST_ANSWER)
        self._away, self._lost = welcome["away"], welcome["lost"]
        self._repeatable = frozenset(welcome["repeatable"])
        self._recorded = frozenset(welcome.get("recorded", ()))  # a hub of an earlier version records nothing
        self._pause = PAUSES[0]
        hub.setblocking(False)
        for notice in self._notices:
            self._push(notice)
        self._notices.clear()
        for key, sent in list(self._sent.items()):
            if sent.repeated and not self._is_repeatable(sent):
                self._forget(key)
                self._answer(key, sent, self._lost)
            else:
                self._put(key)
        self._deliver(rest)
        self._finish()

    def _send(self) -> None:
        assert self._hub is not None
        try:
            while self._outward:
                count = self._hub.send(self._outward[0])
                self._owed -= count
                if count < len(self._outward[0]):
                    self._outward[0] = self._outward[0][count:]
                    return
                self._outward.popleft()
        except BlockingIOError:
            return
        except OSError:
            return  # what it sent before its end must still be read
        self._finish()

    def _receive(self, hub: socket.socket) -> None:
        try:
            data = hub.recv(PIECE)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if data:
            self._deliver(data)
        else:
            self._lose()

    def _deliver(self, data: bytes) -> None:
        """Pass on the complete lines of the hub; an incomplete last line is dropped."""
        for line in self._from_hub.complete_lines(data):
            if line.startswith(CONTROL):
                self._obey(line)
            elif line.endswith(TOO_LARGE):
                sys.exit("[nexus] The hub sent a line that is larger than any answer.")
            else:
                if answered := ANSWERED.match(line):
                    self._free(self._forget(json.loads(answered[1])))
                self._inward += line + b"\n"

    def _obey(self, line: bytes) -> None:
        kind, _, rest = line.removeprefix(CONTROL).partition(b",")
        if kind == b'"state"':
            self._state = rest.removeprefix(b'"state":')[:-1]
        elif kind == b'"bye"':
            self._taken = json.loads(line)["taken"]

    def _lose(self) -> None:
        """Handle the end of the hub. A request that the hub may have done is sent again only if that is harmless."""
        assert self._hub is not None
        self._hub.close()
        self._hub = None
        if self._ended:
            self._flush_and_exit()
        unsent = self._lines - len(self._outward)  # the hub has at most a part of the first of these
        self._outward.clear()
        self._owed = 0
        reached = unsent if self._taken is None else min(unsent, self._taken)
        until = time.monotonic() + AWAY_SECONDS
        for key, sent in list(self._sent.items()):
            if sent.line is not None and (sent.number > reached or self._is_repeatable(sent)):
                repeated = sent.repeated or sent.number <= reached
                self._sent[key] = sent._replace(number=0, until=until, repeated=repeated)
            else:
                self._forget(key)
                self._answer(key, sent, self._away if sent.number > reached else self._lost)
        self._next = time.monotonic() + self._pause

    def _is_repeatable(self, sent: OpenRequest) -> bool:
        """Return whether this hub, or the one before it, lets a request that was done be sent again."""
        return sent.repeatable or (sent.slot is not None and bool(self._recorded))

    def _flush_and_exit(self) -> NoReturn:
        if 1 in self._pipes:
            os.set_blocking(1, True)
        while self._inward:
            self._write()
        os._exit(0)

    def _look_after_hub(self) -> None:
        """Without a hub: connect again when it is time, and answer the requests that have waited too long."""
        if self._hub is not None:
            return
        now = time.monotonic()
        for key, sent in list(self._sent.items()):
            if sent.until <= now:
                self._forget(key)
                self._answer(key, sent, self._lost if sent.repeated and sent.slot is not None else self._away)
        if now < self._next:
            return
        self._pause = min(2 * self._pause, PAUSES[1])
        self._next = now + self._pause
        try:
            connection, welcome, rest = connect(self._home, self._hello, self._state)
        except NoHub:
            return
        if welcome["nexus"] == "welcome":
            self._attach(connection, welcome, rest)
            return
        connection.close()
        for key, sent in list(self._sent.items()):  # it will not accept this process later, either
            self._forget(key)
            self._answer(key, sent, welcome["answer"])


def _is_pipe(number: int) -> bool:
    mode = os.fstat(number).st_mode
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)
