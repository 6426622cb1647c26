"""`nexus rpc` against a real hub, and against what is none."""

from __future__ import annotations

import json
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from nexus.client import ServerTokenManager, generate_api_key
from tests import warm
from tests.acceptance.hub import ROOT, START_SECONDS, Hub, serving, start
from tests.acceptance.processes import environment, nexus
from tests.conftest import Furnish
from tests.control.stub import free_port

SLOW = """
default = "rehearsal"
[runners.slow]
kind = "rehearsal"
script = [{ when = "wait", wait = 600, say = "Late." }, { when = "fail", fail = "It broke." }]
"""


def errors(said: subprocess.CompletedProcess[str]) -> list[str]:
    """The lines on stderr, but for those that tell, on a loaded machine, that a command is at work."""
    return [line for line in said.stderr.splitlines() if not line.endswith(" s so far")]


def rpc(home: Path, *arguments: str, **more: str) -> Any:
    """What a command that went well printed."""
    said = nexus(home, "rpc", *arguments, **more)
    assert (said.returncode, errors(said)) == (0, []), said
    printed = json.loads(said.stdout)
    assert said.stdout == json.dumps(printed, indent=2) + "\n"
    return printed


def failed(home: Path, *arguments: str, code: int = 1, **more: str) -> str:
    """What a command that failed said; one line, and no traceback."""
    said = nexus(home, "rpc", *arguments, **more)
    assert said.returncode == code, said
    [error] = errors(said)
    assert error.startswith("Error: ")
    return error


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory, furnish: Furnish) -> Iterator[Hub]:
    """A hub with a pool."""
    home = furnish(tmp_path_factory.mktemp("hub") / "home")
    (home / "runners.toml").write_text(SLOW)
    with serving(home, "--control") as served:
        yield served


def test_an_agent_is_created_sent_to_and_ended(hub: Hub, tmp_path: Path) -> None:
    home, port = hub.home, hub.address[1]
    assert rpc(home, "detect") == {"port": port, "result": "nexus_server"}
    (tmp_path / "out").mkdir()
    made = rpc(home, "create", tmp_path.name, "--cwd", str(tmp_path), "--write-path", str(tmp_path / "out"))
    assert made == {"agent_id": tmp_path.name, "url": f"/agent/{tmp_path.name}"}
    sent = rpc(home, "send", tmp_path.name, "Hello!", "--request-id", "r1")
    assert sent["content"].endswith("You said: Hello!") and sent["request_id"] == "r1"
    assert rpc(home, "send", tmp_path.name, "Hello!", "--request-id", "r1") == sent  # twice is once
    assert "another message" in failed(home, "send", tmp_path.name, "Bye!", "--request-id", "r1")
    rows = rpc(home, "list", "--port", str(port))["agents"]
    row = next(row for row in rows if row["agent_id"] == tmp_path.name)
    assert (row["permission_level"], row["cwd"]) == ("sandboxed", str(tmp_path))
    assert (row["write_paths"], row["state"]) == ([str(tmp_path / "out")], "idle")
    status = rpc(home, "status", tmp_path.name)
    assert status["context"]["message_count"] == 2 and status["tokens"]["remaining"] > 0
    said = rpc(home, "messages", tmp_path.name, "--limit", "1")["messages"]
    assert [message["role"] for message in said] == ["assistant"]
    assert rpc(home, "compact", tmp_path.name) == {"compacted": False, "reason": "nothing_to_compact"}
    nothing = nexus(home, "rpc", "cancel", tmp_path.name, "r1")
    assert nothing.returncode == 1 and json.loads(nothing.stdout)["reason"] == "not_found_or_completed"
    assert "already" in failed(home, "create", tmp_path.name, "--cwd", str(tmp_path))
    assert rpc(home, "destroy", tmp_path.name) == {"success": True, "agent_id": tmp_path.name}
    again = nexus(home, "rpc", "destroy", tmp_path.name)
    assert again.returncode == 1 and json.loads(again.stdout) == {"success": False, "agent_id": tmp_path.name}
    for verb in (
        ["send", tmp_path.name, "x"],
        ["status", tmp_path.name],
        ["messages", tmp_path.name],
        ["cancel", "..", "x"],
    ):
        assert "There is no agent" in failed(home, *verb)


def test_a_turn_that_takes_long_goes_on_and_is_cancelled(hub: Hub, tmp_path: Path) -> None:
    home, name = hub.home, tmp_path.name
    rpc(home, "create", name, "--cwd", str(tmp_path), "--model", "slow")
    over = failed(home, "send", name, "wait", "--request-id", "long", "--timeout", "0.1")
    assert "--request-id long" in over
    slow = ("--cwd", str(tmp_path), "--model", "slow", "--message", "wait", "--timeout", "0.1")
    over = failed(home, "create", f".{name}", *slow)
    assert f".{name} is there" in over and "--request-id" in over
    rpc(home, "destroy", f".{name}")
    rpc(home, "create", f".{name}", "--cwd", str(tmp_path), "--timeout", "60")  # nothing to wait for
    rpc(home, "destroy", f".{name}")
    with ThreadPoolExecutor(1) as sender:
        waiting = sender.submit(rpc, home, "send", name, "wait", "--request-id", "long")
        while not rpc(home, "messages", name)["messages"]:
            pass  # until it is taken
        assert rpc(home, "cancel", name, "long") == {"cancelled": True, "request_id": "long"}
        assert waiting.result() == {"cancelled": True, "request_id": "long"}
    assert "It broke." in failed(home, "send", name, "fail")


def test_who_follows_sees_each_message_as_it_comes(hub: Hub, tmp_path: Path) -> None:
    rpc(hub.home, "create", tmp_path.name, "--cwd", str(tmp_path))
    rpc(hub.home, "send", tmp_path.name, "one")
    command = ["rpc", "messages", tmp_path.name, "--follow"]
    follower = warm.Process(command, environment(hub.home), text=True, stdout=subprocess.PIPE)
    try:
        assert follower.stdout is not None
        seen = [json.loads(follower.stdout.readline()) for _ in range(2)]
        rpc(hub.home, "send", tmp_path.name, "two")
        seen += [json.loads(follower.stdout.readline()) for _ in range(2)]
    finally:
        follower.send_signal(signal.SIGINT)
        follower.wait(START_SECONDS)
    assert [message["position"] for message in seen] == [0, 1, 2, 3]
    assert [message["content"] for message in seen if message["role"] == "user"] == ["one", "two"]
    assert follower.returncode == 130


def test_who_follows_begins_with_the_newest_and_ends_with_the_agent(hub: Hub, tmp_path: Path) -> None:
    rpc(hub.home, "create", tmp_path.name, "--cwd", str(tmp_path))
    rpc(hub.home, "send", tmp_path.name, "one")
    command = ["rpc", "messages", tmp_path.name, "--follow", "--limit", "1"]
    follower = warm.Process(command, environment(hub.home), text=True, stdout=subprocess.PIPE)
    assert follower.stdout is not None
    assert json.loads(follower.stdout.readline())["role"] == "assistant"
    rpc(hub.home, "destroy", tmp_path.name)
    assert follower.stdout.read() == "" and follower.wait(START_SECONDS) == 0
    assert "No such pool agent" in failed(hub.home, "messages", "nobody", "--follow")


def test_messages_come_from_standard_input(hub: Hub, tmp_path: Path) -> None:
    rpc(hub.home, "create", tmp_path.name, "--cwd", str(tmp_path))
    command = [sys.executable, str(ROOT / "manage.py"), "rpc", "send", tmp_path.name, "-"]
    strict = environment(hub.home, PYTHONIOENCODING="utf-8:strict")
    for given, told in (("Ünïcode\n".encode(), "Ünïcode"), (b"\xff\xfe", "no text")):
        said = subprocess.run(command, env=strict, input=given, capture_output=True)
        answer = json.loads(said.stdout)["content"] if said.returncode == 0 else said.stderr.decode()
        assert told in answer and "Traceback" not in said.stderr.decode()


REFUSED = [
    (["create", "a\n"], "agent_id takes"),
    (["create", "x", "--preset", "\x1b[31m"], "no preset"),
    (["create", "x", "--cwd", "/no/such/directory"], "'/no/such/directory' is not"),
    (["send", "../rpc", "x"], "There is no agent"),
]


def test_what_is_refused_is_told_and_makes_nothing(hub: Hub) -> None:
    for arguments, told in REFUSED:
        error = failed(hub.home, *arguments)
        assert told in error and error.rstrip("\n").isprintable()
    assert "x" not in {row["agent_id"] for row in rpc(hub.home, "list")["agents"]}


def test_without_a_server_it_says_so(tmp_path: Path) -> None:
    home, port = tmp_path / "home", str(free_port())
    assert "no server answers there" in failed(home, "list", "--port", port)
    nothing = nexus(home, "rpc", "detect", "--port", port)
    assert nothing.returncode == 1 and json.loads(nothing.stdout)["result"] == "no_server"
    assert nothing.stderr.startswith("Error: No server") and not home.exists()


def test_a_token_must_be_this_runs_and_its_owners_alone(hub: Hub, tmp_path: Path) -> None:
    port = str(hub.address[1])
    assert "no token" in failed(tmp_path, "list", "--port", port)
    assert "read it again" in failed(tmp_path, "list", "--port", port, NEXUS_RPC_TOKEN=generate_api_key())
    assert "other characters" in failed(tmp_path, "list", "--port", port, NEXUS_RPC_TOKEN="a b")
    tokens = ServerTokenManager(int(port), tmp_path)
    right = ServerTokenManager(int(port), hub.home).load()
    assert right is not None
    tokens.save(right)
    assert "agents" in rpc(tmp_path, "list")
    tokens.token_path.chmod(0o644)
    assert "chmod 600" in failed(tmp_path, "list")
    assert "agents" in rpc(tmp_path, "list", NEXUS_RPC_TOKEN=right)
    tokens.token_path.unlink()
    tokens.token_path.symlink_to(hub.home / tokens.token_path.name)
    assert "no token" in failed(tmp_path, "list")


def test_a_token_is_the_same_at_each_start_and_its_file_ends_with_the_server(home: Path) -> None:
    tokens = []
    for number in (signal.SIGKILL, signal.SIGTERM, signal.SIGINT):
        hub = start(home, "--control")
        try:
            file = ServerTokenManager(hub.address[1], home)
            tokens.append(file.load())
            assert rpc(home, "list") == {"agents": []}  # also beside the token of the one that was killed
            alone = f"rehearsal alone: no model answers until {home / 'runners.toml'} names one"
            assert told(hub) == [str(file.token_path), alone]
            hub.stop(number)
            assert file.token_path.exists() == (number == signal.SIGKILL)
        finally:
            hub.process.kill()
            hub.process.wait()
    assert None not in tokens and len(set(tokens)) == 1


def test_the_documented_session_with_curl_is_answered(home: Path) -> None:
    page = (ROOT / "docs" / "how-to" / "run-a-pool.md").read_text()
    session = page.partition("<!-- A test plays this session. -->\n```bash\n")[2].partition("```")[0]
    hub = start(home, "--control")
    try:
        session = session.replace("~/.nexus/rpc.token", str(ServerTokenManager(hub.address[1], home).token_path))
        session = session.replace("http://127.0.0.1:8765", hub.url)
        played = subprocess.run(["bash", "-eu", "-c", session], text=True, capture_output=True, check=True)
        results = [json.loads(line)["result"] for line in played.stdout.splitlines()]
        assert hub.process.wait(180) == 0
    finally:
        hub.process.kill()
        hub.process.wait()
    created, sent, tokens, context, messages, cancelled, listed, destroyed, stopped = results
    assert created == {"agent_id": "worker-1", "url": "/agent/worker-1"}
    assert sent["content"].endswith("You said: Hello!") and sent["request_id"] == "r1"
    assert tokens["messages"] > 0 and context["message_count"] == len(messages["messages"]) == 2
    assert cancelled["reason"] == "not_found_or_completed"
    assert [row["agent_id"] for row in listed["agents"]] == ["worker-1"]
    assert destroyed == {"success": True, "agent_id": "worker-1"} and stopped["success"] is True


@pytest.mark.parametrize("name", ["tutorial/first-team.md", "how-to/run-a-pool.md"])
def test_the_commands_that_the_documentation_shows_are_answered(hub: Hub, tmp_path: Path, name: str) -> None:
    (tmp_path / "shop").mkdir()
    shown = re.findall(r"^\$ (?:\S*/)?nexus rpc (.*)$", (ROOT / "docs" / name).read_text(), re.M)
    assert len(shown) >= 2
    for line in shown:
        arguments = shlex.split(line.replace("~", str(tmp_path)))
        if "--follow" not in arguments:
            rpc(hub.home, *arguments)


def test_a_hub_without_a_pool_is_no_server(hub: Hub, home: Path) -> None:
    plain = start(home)
    try:
        port = str(plain.address[1])
        for arguments in (["list", "--port", port], ["create", "ana"]):
            told = failed(home, *arguments)
            assert f"on 127.0.0.1:{port}, runs no pool" in told and "nexus serve --control" in told
        assert "not in JSON-RPC" in failed(hub.home, "list", "--port", port), "of another home, nothing is known"
        assert json.loads(nexus(home, "rpc", "detect", "--port", port).stdout)["result"] == "other_service"
    finally:
        plain.stop()


def told(hub: Hub) -> list[str]:
    """Where a server says that its token is, and what answers there."""
    return [line.split(maxsplit=2)[2] for line in hub.lines if " Token " in line or " Runners " in line]


def test_the_server_tells_where_its_token_is_and_what_answers(hub: Hub) -> None:
    assert told(hub) == [str(hub.home / f"rpc-{hub.address[1]}.token"), "rehearsal (the default), slow"]
