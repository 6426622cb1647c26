"""A relay and a hub that is played by the test, line by line."""

from __future__ import annotations

import json
import signal
import socket
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from subprocess import PIPE
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_bridge.relay import DIRECTORY, LONGEST_LINE, SOCKET, TOO_LARGE, LineSplitter, address
from tests import warm
from tests.acceptance.hub import START_SECONDS
from tests.acceptance.processes import HELLO, environment

PATIENCE = Path(__file__).parent / "patience.py"
REFUSAL = {"call": {"content": [], "isError": True}, "other": {"code": -32603, "message": "no"}}
WELCOME: dict[str, Any] = {
    "nexus": "welcome",
    "away": {"call": {"content": [], "structuredContent": "away"}, "other": {"code": -32603, "message": "away"}},
    "lost": {"call": {"content": [], "structuredContent": "lost"}, "other": {"code": -32603, "message": "lost"}},
    "repeatable": ["inbox_count"],
    "recorded": ["message_create", "handoff_claim"],
}


def line(message: Any) -> bytes:
    return json.dumps(message, separators=(",", ":")).encode() + b"\n"


def call(number: int, name: str, **arguments: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": {"name": name, "arguments": arguments}}


def answer(number: int) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": number, "result": {"of": number}}


class Side:
    """One end of a connection, spoken line by line."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self.file = connection.makefile("rb")

    def say(self, *messages: Any) -> None:
        self.connection.sendall(b"".join(map(line, messages)))

    def hear(self) -> Any:
        """The next message, without the head of a write."""
        return self.request()[1]

    def request(self) -> tuple[Any, Any]:
        """The head of the next message, if it has one, and the message."""
        head, tab, rest = self.file.readline().rpartition(b"\t")
        return json.loads(head) if tab else None, json.loads(rest)

    def close(self) -> None:
        self.file.close()
        self.connection.close()


class Hub:
    """The hub of a home, as far as relays see it."""

    def __init__(self, home: Path) -> None:
        self.path = home / DIRECTORY / SOCKET
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.listening = socket.socket(socket.AF_UNIX)
        self.path.unlink(missing_ok=True)
        self.listening.bind(str(self.path))
        self.listening.listen()
        self.listening.settimeout(START_SECONDS)

    def accept(self, first: Any = WELCOME) -> tuple[Side, dict[str, Any]]:
        """The next relay, answered, and its hello."""
        connection, _ = self.listening.accept()
        connection.settimeout(START_SECONDS)
        side = Side(connection)
        hello = side.hear()
        side.say(first)
        return side, hello

    def close(self) -> None:
        self.listening.close()


class Agent:
    """The client of a relay that runs."""

    def __init__(self, home: Path, program: Path) -> None:
        environ = environment(home, AWAY_SECONDS="0.2")
        self.process = warm.Process(["runmcp"], environ, stdin=PIPE, stdout=PIPE, stderr=PIPE, program=program)
        assert self.process.stdin and self.process.stdout
        self.stdin, self.stdout = self.process.stdin, self.process.stdout

    def say(self, *messages: Any) -> None:
        self.stdin.write(b"".join(map(line, messages)))
        self.stdin.flush()

    def hear(self) -> Any:
        return json.loads(self.stdout.readline())

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout, self.process.stderr):
            assert pipe is not None
            pipe.close()


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


@pytest.fixture
def hub(home: Path) -> Iterator[Hub]:
    with closing(Hub(home)) as listening:
        yield listening


Connect = Callable[..., tuple[Agent, Side, dict[str, Any]]]


@pytest.fixture
def connect(hub: Hub, home: Path) -> Iterator[Connect]:
    """Start a relay and take it in: its client, the hub's side of the connection, its hello."""
    opened: list[Agent] = []

    def connected(program: Path = warm.PROGRAM) -> tuple[Agent, Side, dict[str, Any]]:
        opened.append(Agent(home, program))
        return opened[-1], *hub.accept()

    yield connected
    for agent in opened:
        agent.close()


@pytest.mark.usefixtures("starts_processes")
def test_it_carries_lines_both_ways(connect: Connect) -> None:
    agent, side, hello = connect()
    assert (hello["process"], hello["cwd"]) == (agent.process.pid, str(Path.cwd()))
    agent.say(HELLO, call(1, "inbox_count"))
    assert [side.hear(), side.hear()] == [HELLO, call(1, "inbox_count")]
    side.say(answer(1), {"jsonrpc": "2.0", "method": "notifications/x"})
    assert [agent.hear(), agent.hear()] == [answer(1), {"jsonrpc": "2.0", "method": "notifications/x"}]


@pytest.mark.usefixtures("starts_processes")
def test_it_sends_again_what_a_killed_hub_did_not_answer(connect: Connect, hub: Hub) -> None:
    """The hub is killed in the middle of five calls, one of which it has answered."""
    agent, side, _ = connect()
    agent.say(
        call(1, "handoff_claim"), call(2, "inbox_count"), call(3, "message_create"), call(4, "pool_worktree_queue")
    )
    agent.say({"jsonrpc": "2.0", "id": "five", "method": "tools/list"})
    first, *_ = (side.request() for _ in range(5))
    side.say(answer(3))
    assert agent.hear() == answer(3)
    side.close()
    lost = agent.hear()
    assert (lost["id"], lost["result"]["structuredContent"]) == (4, "lost"), "no hub records it"
    side, _ = hub.accept()
    head, message = side.request()
    assert (head, message) == ({**first[0], "repeated": True}, call(1, "handoff_claim"))
    assert [side.hear()["id"], side.hear()["id"]] == [2, "five"]
    side.say(answer(2))
    assert agent.hear() == answer(2)


@pytest.mark.usefixtures("starts_processes")
def test_each_write_has_a_key_of_its_own_and_a_slot_until_it_is_answered(connect: Connect) -> None:
    """Also where a client gives each request the same number."""
    agent, side, _ = connect()
    heads = []
    for number in (1, 1, 2, 3):
        agent.say(call(number, "message_create"))
        heads.append(side.request()[0])
        if number == 1:
            side.say(answer(1))
            agent.hear()
    assert [head["slot"] for head in heads] == [0, 0, 0, 1]
    assert len({head["key"] for head in heads}) == 4
    assert not any(head["repeated"] for head in heads)


@pytest.mark.usefixtures("starts_processes")
def test_the_slot_of_a_cancelled_write_is_not_used_again(connect: Connect) -> None:
    """It may still be under way in the hub."""
    agent, side, _ = connect()
    agent.say(call(1, "message_create"))
    agent.say({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}})
    agent.say(call(2, "message_create"))
    assert [(side.request()[0] or {}).get("slot") for _ in range(3)] == [0, None, 1]


@pytest.mark.usefixtures("starts_processes")
def test_a_hub_that_records_nothing_gets_no_write_again(connect: Connect, hub: Hub) -> None:
    """One of an earlier version, after one of this version."""
    agent, side, _ = connect()
    agent.say(call(1, "message_create"))
    side.hear()
    side.close()
    side, _ = hub.accept({name: value for name, value in WELCOME.items() if name != "recorded"})
    assert agent.hear()["result"]["structuredContent"] == "lost"
    agent.say(call(2, "message_create"))
    assert side.request() == (None, call(2, "message_create"))


@pytest.mark.usefixtures("starts_processes")
def test_it_sends_what_a_hub_did_not_take_again(connect: Connect, hub: Hub) -> None:
    """A hub that ends in good order says how many lines it took."""
    agent, side, _ = connect()
    agent.say(call(1, "message_create"), call(2, "message_create"))
    assert side.hear()["id"] == 1
    side.say(answer(1), {"nexus": "bye", "taken": 1})
    side.close()
    assert agent.hear() == answer(1)
    side, _ = hub.accept()
    assert side.hear()["id"] == 2


@pytest.mark.usefixtures("starts_processes")
def test_half_an_answer_is_none(connect: Connect, hub: Hub) -> None:
    agent, side, _ = connect()
    agent.say(call(1, "inbox_count"))
    side.hear()
    side.connection.sendall(line(answer(1))[:20])
    side.close()
    side, _ = hub.accept()
    assert side.hear()["id"] == 1
    side.say(answer(1))
    assert agent.hear() == answer(1)


@pytest.mark.usefixtures("starts_processes")
def test_it_imports_none_of_what_the_hub_is_built_on(hub: Hub, home: Path) -> None:
    command = [sys.executable, "-X", "importtime", str(warm.PROGRAM), "runmcp"]  # which tells each module on stderr
    with subprocess.Popen(command, env=environment(home), stdin=PIPE, stdout=PIPE, stderr=PIPE) as process:
        assert process.stdin and process.stdout
        side, _ = hub.accept()
        process.stdin.write(line(HELLO))
        process.stdin.flush()
        assert side.hear() == HELLO
        side.say(answer(0))
        assert json.loads(process.stdout.readline()) == answer(0)
        process.stdin.close()
        assert side.file.readline() == b""
        side.close()
        told = process.stderr.read() if process.stderr else b""
    imported = {each.rpartition(b"|")[2].strip().partition(b".")[0].decode() for each in told.splitlines()}
    assert "mcp_bridge" in imported
    assert not imported & {"django", "pydantic", "mcp", "mcp_types", "anyio", "starlette", "asyncio"}


@pytest.mark.usefixtures("starts_processes")
def test_it_brings_what_the_hub_said_of_the_connection_to_the_next_one(connect: Connect, hub: Hub) -> None:
    _, side, hello = connect()
    assert "state" not in hello
    side.say({"nexus": "state", "state": {"opened": [1]}}, {"nexus": "state", "state": {"opened": [1, {"a": "}"}]}})
    side.close()
    side, again = hub.accept()
    assert again == {**hello, "state": {"opened": [1, {"a": "}"}]}}


@pytest.mark.usefixtures("starts_processes")
def test_a_cancelled_call_is_not_sent_again(connect: Connect, hub: Hub) -> None:
    agent, side, _ = connect()
    agent.say(call(1, "inbox_count"), call(2, "inbox_count"))
    agent.say({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}})
    for _ in range(3):
        side.hear()
    side.close()
    side, _ = hub.accept()
    assert side.hear()["id"] == 2


@pytest.mark.usefixtures("starts_processes")
def test_calls_wait_for_a_hub_that_is_away_and_not_for_ever(connect: Connect, hub: Hub, home: Path) -> None:
    agent, side, _ = connect(PATIENCE)
    agent.say(call(0, "message_create"))
    side.hear()
    hub.close()
    hub.path.unlink()
    side.close()
    agent.say(call(1, "message_create"), {"jsonrpc": "2.0", "id": 2, "method": "tools/list"})
    assert agent.hear()["result"]["structuredContent"] == "lost", "the hub had it"
    assert agent.hear()["result"]["structuredContent"] == "away"
    assert agent.hear()["error"]["message"] == "away"
    with closing(Hub(home)) as new:
        side, _ = new.accept()
        agent.say(call(3, "message_create"))
        assert side.hear()["id"] == 3, "and what was answered is not sent any more"


@pytest.mark.usefixtures("starts_processes")
def test_a_hub_that_takes_it_no_more_says_why(connect: Connect, hub: Hub) -> None:
    agent, side, _ = connect()
    agent.say(call(1, "inbox_count"))
    side.hear()
    side.close()
    hub.accept({"nexus": "refused", "code": "CONFIG_ERROR", "message": "no", "answer": REFUSAL})
    assert agent.hear() == {"jsonrpc": "2.0", "id": 1, "result": REFUSAL["call"]}


@pytest.mark.usefixtures("starts_processes")
@pytest.mark.parametrize("kind", ["refused", "elsewhere"])
def test_a_hub_that_refuses_it_ends_it_or_leaves_it_to_itself(hub: Hub, home: Path, kind: str) -> None:
    with closing(Agent(home, warm.PROGRAM)) as agent:
        hub.accept({"nexus": kind, "code": "CONFIG_ERROR", "message": "because", "answer": REFUSAL})
        agent.say(HELLO)
        assert agent.process.stderr is not None
        if kind == "refused":
            assert agent.process.wait(START_SECONDS) == 1
            assert agent.process.stderr.read() == b"[nexus] CONFIG_ERROR: because\n"
        else:
            assert agent.hear()["result"]["serverInfo"]["name"] == "nexus"
            assert agent.process.stderr.readline() == b"[nexus] This process serves itself: because\n"


@pytest.mark.usefixtures("starts_processes")
def test_it_serves_itself_where_told_to(home: Path, hub: Hub) -> None:
    environ = environment(home, NEXUS_STANDALONE="1")
    process = warm.Process(["runmcp"], environ, stdin=PIPE, stdout=PIPE)
    try:
        assert process.stdin and process.stdout
        process.stdin.write(line(HELLO))
        process.stdin.flush()
        assert json.loads(process.stdout.readline())["result"]["serverInfo"]["name"] == "nexus"
    finally:
        process.kill()
        process.wait()


@pytest.mark.usefixtures("starts_processes")
def test_it_ends_with_its_client_and_hands_over_what_was_under_way(connect: Connect) -> None:
    agent, side, _ = connect()
    agent.say(call(1, "inbox_count"))
    agent.stdin.close()
    assert side.hear()["id"] == 1
    assert side.file.readline() == b"", "the hub learns that no more comes"
    side.say(answer(1))
    side.close()
    assert agent.hear() == answer(1)
    assert agent.process.wait(START_SECONDS) == 0


@pytest.mark.usefixtures("starts_processes")
def test_it_ends_once_nobody_reads_it(connect: Connect) -> None:
    agent, _, _ = connect()
    agent.stdout.close()
    assert agent.process.wait(START_SECONDS) == 0


@pytest.mark.usefixtures("starts_processes")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_it_ends_at_a_signal_while_its_hub_is_away(connect: Connect, hub: Hub, number: int) -> None:
    agent, side, _ = connect(PATIENCE)
    hub.close()
    side.close()
    agent.say(call(1, "message_create"))
    agent.hear()
    agent.process.send_signal(number)
    assert agent.process.wait(START_SECONDS) == 0


@pytest.mark.usefixtures("starts_processes")
def test_it_passes_no_more_of_a_line_than_a_hub_takes(connect: Connect) -> None:
    agent, side, _ = connect()
    agent.stdin.write(b'{"id":1,"x":"' + b"x" * (LONGEST_LINE + 1) + b'"}\n')
    agent.say(call(2, "inbox_count"))
    passed = side.file.readline()
    assert passed.startswith(b'{"id":1,"x":"xx') and passed.endswith(TOO_LARGE + b"\n") and len(passed) < 10_000
    assert side.hear()["id"] == 2


@given(st.lists(st.binary(max_size=12)), st.integers(1, 9), st.integers(0, 8))
def test_lines_are_the_same_however_they_arrive(pieces: list[bytes], size: int, longest: int) -> None:
    data = b"\n".join(pieces)
    lines = LineSplitter(longest)
    taken = [each for start in range(0, len(data), size) for each in lines.complete_lines(data[start : start + size])]
    expected = [line if len(line) <= longest else None for line in data.split(b"\n")[:-1]]
    assert [None if line.endswith(TOO_LARGE) else line for line in taken] == expected


def test_a_path_that_the_system_does_not_take_is_reached_all_the_same(tmp_path: Path) -> None:
    home = tmp_path.joinpath(*["a long name of a directory"] * 8)
    (home / DIRECTORY).mkdir(parents=True)
    with socket.socket(socket.AF_UNIX) as listening, address(home) as path:
        listening.bind(path)
    assert stat.S_ISSOCK((home / DIRECTORY / SOCKET).stat().st_mode)
