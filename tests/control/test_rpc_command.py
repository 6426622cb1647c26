"""`nexus rpc` on its command line: what it takes, and what its help says."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any, Self

import pytest

from nexus.client import CallFailed, ServerTokenManager
from nexus.control.management.commands import pool, rpc
from nexus.control.management.commands.rpc import EXIT_CODES, Command
from nexus.control.operations.pool import CreateAgent
from nexus.core.instance import Holder
from tests.control.stub import free_port

VERBS = "list create destroy send cancel status messages compact detect shutdown".split()


@pytest.mark.parametrize(
    "arguments",
    [
        ["nothing"],
        ["create"],
        ["send", "x"],
        ["list", "extra"],
        ["list", "--json"],
        ["send", "x", "y", "--timeout", "nan"],
        ["send", "x", "y", "--timeout", "-1"],
        ["detect", "--port", "0"],
        ["detect", "--port", "65536"],
        ["detect", "--port", "abc"],
        ["create", "x", "--cwd", ""],
        ["create", "x", "--wake-tokens", "-1"],
        ["create", "x", "--wake-tokens", "all"],
    ],
)
def test_a_wrong_command_line_ends_with_2(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        Command().create_parser("nexus", "rpc").parse_args(arguments)
    said = capsys.readouterr().err
    assert ended.value.code == 2 and said.startswith("Error: ") and said.endswith("See --help.\n")


def test_it_is_called_pool_too() -> None:
    said = pool.Command().create_parser("nexus", "pool").format_help()
    assert "usage: nexus pool " in said and "nexus pool create" in said
    assert said.count("nexus rpc") == 1, "its own examples, and once the other name"
    given = ["create", "a", "--wake-on", "mail,task", "--wake-on", "topic"]
    assert pool.Command().create_parser("nexus", "pool").parse_args(given).wake_on == ["mail", "task", "topic"]


def test_it_waits_300_seconds_and_lists_without_a_verb() -> None:
    parser = Command().create_parser("nexus", "rpc")
    assert parser.parse_args(["send", "ana", "Hello"]).timeout == 300
    assert parser.parse_args([]).verb == "list"


def ran(line: str, name: str = "rpc") -> int:
    """Run a command line in this process; its exit code."""
    command = Command()
    with pytest.raises(SystemExit) as ended:
        command.run(**vars(command.create_parser("nexus", name).parse_args(line.split())))
    return int(ended.value.code or 0)


class Connected:
    """What stands for a client of a server: it is connected to none."""

    def __init__(self, *_: Any, **__: Any) -> None:
        pass

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        pass


@pytest.mark.parametrize("verb", VERBS)
def test_each_verb_shows_examples_and_exit_codes(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        Command().create_parser("nexus", "rpc").parse_args([verb, "--help"])
    said = capsys.readouterr().out
    assert f"nexus rpc {verb}" in said and EXIT_CODES in said


def test_it_creates_agents_with_all_that_the_operation_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: dict[str, Any] = {}

    class Client(Connected):
        async def create_agent(self, agent_id: str, **how: Any) -> dict[str, Any]:
            asked.update(how, agent_id=agent_id)
            return {"response": {}}

    monkeypatch.setattr(rpc, "NexusClient", Client)
    line = (
        "create ann --preset trusted --cwd /srv --write-path /srv/a --write-path /srv/b --model small --worktree "
        "--disable-tool run --disable-tool send --parent lead --wake-on mail --wake-tokens 0 "
        "--message Hello --timeout 60"
    )
    assert ran(line) == 0
    asked["timeout_seconds"] = asked.pop("timeout")
    assert asked == {
        "agent_id": "ann", "preset": "trusted", "cwd": Path("/srv"), "model": "small",
        "allowed_write_paths": [Path("/srv/a"), Path("/srv/b")], "disable_tools": ["run", "send"],
        "parent_agent_id": "lead", "wake_on": ["mail"], "wake_tokens": 0, "worktree": True,
        "initial_message": "Hello", "wait_for_initial_response": True, "timeout_seconds": 60,
    }  # fmt: skip
    assert set(asked) == set(CreateAgent.model_fields)


def test_it_shows_the_newest_messages_though_long_ones_come_in_several_pages(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Client(Connected):
        def for_agent(self, agent_id: str) -> Client:
            return self

        async def get_messages(self, offset: int = 0, limit: int = 200) -> dict[str, Any]:
            """Of nine, two at a time."""
            messages = [{"index": index} for index in range(offset, min(offset + min(limit, 2), 9))]
            return {"agent_id": "ann", "total": 9, "offset": offset, "limit": limit, "messages": messages}

    monkeypatch.setattr(rpc, "NexusClient", Client)
    assert ran("messages ann --limit 5") == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["offset"], told["limit"]) == (4, 5)
    assert [message["index"] for message in told["messages"]] == [4, 5, 6, 7, 8]


@pytest.mark.parametrize("has_runs", [True, False])
def test_the_list_says_what_each_agent_does(
    has_runs: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Client(Connected):
        async def list_agents(self) -> list[dict[str, Any]]:
            return [{"agent_id": name} for name in ("ann", "bob", "cleo")]

        async def call(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
            if not has_runs:
                raise CallFailed(-32601, "Method not found")
            doing = {"queued": ["ann", "bob"], "running": ["ann"], "stuck": []}[params["outcome"]]
            return {"runs": [{"agent_id": name, "ended_at": None} for name in doing]}

    monkeypatch.setattr(rpc, "NexusClient", Client)
    ran("list", "pool")
    states = [row.get("state") for row in json.loads(capsys.readouterr().out)["agents"]]
    assert states == (["running", "queued", "idle"] if has_runs else [None] * 3)


@pytest.mark.usefixtures("starts_processes")
def test_a_server_that_has_a_token_is_not_said_to_run_no_pool(
    monkeypatch: pytest.MonkeyPatch, configure: Callable[..., None], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    port = free_port()
    configure(home=tmp_path)
    monkeypatch.setattr(rpc, "running", lambda home: Holder(1, "127.0.0.1", port))

    def told() -> str:
        ran(f"list --port {port}")
        return capsys.readouterr().err

    assert "runs no pool" in told()
    ServerTokenManager(port, tmp_path).generate_fresh()
    assert "no server answers there" in told(), "it goes down, say"


@pytest.mark.usefixtures("starts_processes")
def test_it_takes_the_newest_token_whose_server_runs(configure: Callable[..., None], tmp_path: Path) -> None:
    configure(home=tmp_path)
    with closing(socket.create_server(("127.0.0.1", 0))) as server:
        alive, killed = server.getsockname()[1], free_port()
        for age, port in enumerate((killed, alive)):
            tokens = ServerTokenManager(port, tmp_path)
            tokens.generate_fresh()
            os.utime(tokens.token_path, (1_000 - age, 1_000 - age))
        assert rpc._port({"port": None}) == alive and rpc._port({"port": killed}) == killed
    assert rpc._port({"port": None}) == killed, "the newest, when all are dead"


@pytest.mark.usefixtures("starts_processes")
def test_it_says_that_a_token_is_a_killed_server_s(
    configure: Callable[..., None], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    port = free_port()
    configure(home=tmp_path)
    ServerTokenManager(port, tmp_path).generate_fresh()
    ran("list")
    assert f"a killed one left rpc-{port}.token. Start one with `nexus serve --control`" in capsys.readouterr().err


def test_its_verbs_are_all_tested() -> None:
    assert [verb.name for verb in Command().verbs()] == VERBS
