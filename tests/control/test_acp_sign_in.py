"""Agents that want a login, and runners as they are tried by hand: `nexus runners`."""

from __future__ import annotations

import asyncio
import os
import stat
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command

from nexus.control.agents.transcript import SESSION
from nexus.control.faults import Fault, FaultKind
from nexus.control.models import PoolAgent
from nexus.control.runners import acp_check, processes
from nexus.control.runners.base import RunnerFailed
from nexus.control.runners_file import FILE, Acp, presets, read_runners
from nexus.core.operations.errors import NexusError
from nexus.core.waiting import OUTSIDE, WRITERS, in_thread
from tests.control.acp_here import played, take
from tests.control.turns import Played, create

AGENT = Path(__file__).with_name("acp_agent.py")


@pytest.fixture
def place(committed: None, tmp_path: Path, configure: Callable[..., None]) -> Path:
    configure(home=tmp_path / "home")
    (tmp_path / "home").mkdir()
    (tmp_path / "place").mkdir()
    return tmp_path / "place"


async def agent(place: Path, *flags: str, **more: Any) -> Played:
    return played(await in_thread(WRITERS, lambda: create("ann", str(place))), *flags, **more)


async def test_it_signs_in_with_the_runners_method_to_open_its_session_and_to_load_it(place: Path) -> None:
    signs_in = await agent(place, "--signed-out", "--loads", auth_method="key", env={"TEST_KEY": "k"})
    for _ in range(2):
        assert (await signs_in.turn("hello")).answer == "Hello"
    assert len({entry.meta[SESSION] for entry in await signs_in.entries() if entry.meta}) == 1


@pytest.mark.parametrize(("method", "said"), [(None, "the key ran out"), ("key", "that is no key")])
async def test_one_that_wants_a_login_says_how(place: Path, method: str | None, said: str) -> None:
    with pytest.raises(RunnerFailed) as failed:
        await (await agent(place, "--signed-out", auth_method=method)).turn("hello")
    for part in ("wants a login", "nexus runners login agent", "page (A page), key (A key)", said):
        assert part in str(failed.value)
    assert failed.value.fault == Fault(FaultKind.KEY)


async def test_a_session_has_the_runners_mode_and_maybe_another_in_the_sandbox(place: Path) -> None:
    moody = await agent(place, mode="ask", mode_in_sandbox="free")
    assert (await moody.turn("mode")).answer == "ask"
    moody.take = partial(take, is_confined=True)
    assert (await moody.turn("mode")).answer == "free"
    moody.runner = moody.runner.model_copy(update={"mode": "wild", "mode_in_sandbox": None})
    with pytest.raises(RunnerFailed, match="no mode 'wild', only: auto, ask, free"):
        await moody.turn("hello")


def test_a_sign_in_is_copied_until_the_agent_renews_it(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "operator"))
    source = tmp_path / "operator" / ".agent" / "auth.json"
    source.parent.mkdir(parents=True)
    source.write_text("old")
    runner = Acp(kind="acp", command=["x"], sign_in=["~/.agent/auth.json", "~/.agent/none"])
    agent = PoolAgent(pool_agent_id="pool_x")
    copy = Path(processes.home_of(agent)) / ".agent" / "auth.json"
    processes.sign_in(runner, agent)
    assert copy.read_text() == "old" and stat.S_IMODE(copy.stat().st_mode) == 0o600
    copy.write_text("renewed")
    processes.sign_in(runner, agent)
    assert copy.read_text() == "renewed"
    source.write_text("newer")
    os.utime(source, (copy.stat().st_mtime + 10,) * 2)
    processes.sign_in(runner, agent)
    assert copy.read_text() == "newer"


def test_a_sign_in_is_copied_nowhere_else(place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "operator"))
    (tmp_path / "operator" / ".agent").mkdir(parents=True)
    (tmp_path / "operator" / ".agent" / "auth.json").write_text("secret")
    agent, outside = PoolAgent(pool_agent_id="pool_x"), tmp_path / "outside"
    outside.mkdir()
    (Path(processes.home_of(agent)) / ".agent").symlink_to(outside)
    with pytest.raises(RunnerFailed, match="could not be copied"):
        processes.sign_in(Acp(kind="acp", command=["x"], sign_in=["~/.agent/auth.json"]), agent)
    assert not list(outside.iterdir())


def fifo(path: Path) -> None:
    os.mkfifo(path)
    os.utime(path, (0, 0))


PUT: dict[str, Callable[[Path], None]] = {
    "a FIFO": fifo,
    "a link": lambda path: path.symlink_to("../../away"),
    "a directory": Path.mkdir,
}


@pytest.mark.parametrize("put", PUT.values(), ids=PUT)
async def test_what_an_agent_puts_in_the_way_of_a_sign_in_fails_its_turn_alone(
    put: Callable[[Path], None], place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "operator"))
    (tmp_path / "operator" / ".agent").mkdir(parents=True)
    (tmp_path / "operator" / ".agent" / "auth.json").write_text("secret")
    runner, agent = Acp(kind="acp", command=["x"], sign_in=["~/.agent/auth.json"]), PoolAgent(pool_agent_id="pool_x")
    home = Path(processes.home_of(agent), ".agent")
    home.mkdir()
    put(home / "auth.json")
    for _ in range(2):
        with pytest.raises(RunnerFailed, match="could not be copied into the agent's home"):
            await asyncio.wait_for(in_thread(OUTSIDE, partial(processes.sign_in, runner, agent)), 10)
    assert not any(Path(path).read_text() == "secret" for path in home.parent.parent.rglob("*") if path.is_file())


def test_a_sign_in_follows_the_operators_own_links_and_waits_for_no_fifo(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "operator"))
    (tmp_path / "operator").mkdir()
    (tmp_path / "dotfiles").write_text("secret")
    (tmp_path / "operator" / "auth").symlink_to(tmp_path / "dotfiles")
    os.mkfifo(tmp_path / "operator" / "pipe")
    agent = PoolAgent(pool_agent_id="pool_x")
    processes.sign_in(Acp(kind="acp", command=["x"], sign_in=["~/pipe", "~/auth"]), agent)
    assert {path.name for path in Path(processes.home_of(agent)).iterdir()} == {"auth"}


# Presets


def write_runners(tmp_path: Path, text: str) -> Path:
    file = tmp_path / "home" / FILE
    file.parent.mkdir(exist_ok=True)
    file.write_text(text)
    return file


def test_every_preset_is_a_runner(tmp_path: Path) -> None:
    lines = (f'[runners.{name}]\nkind = "acp"\npreset = "{name}"\nenv = {{ MORE = "1" }}\n' for name in presets())
    runners = read_runners(write_runners(tmp_path, "".join(lines)))
    for name, preset in presets().items():
        runner = runners.named(name)
        assert isinstance(runner, Acp) and runner.command == preset["command"]
        assert runner.env == {**preset.get("env", {}), "MORE": "1"}


@pytest.mark.parametrize("wrong", ['"nobody"', "1"])
def test_a_preset_that_is_none_is_told(tmp_path: Path, wrong: str) -> None:
    file = write_runners(tmp_path, f'[runners.x]\nkind = "acp"\npreset = {wrong}\n')
    with pytest.raises(NexusError, match=r"runners\.x\.preset: there is no preset"):
        read_runners(file)


# By hand


def by_hand(tmp_path: Path, *arguments: str, flags: str = "", more: str = "") -> int:
    """Run `nexus runners` with the tests' agent as the runner `agent`; its exit code."""
    command = [sys.executable, str(AGENT), *flags.split()]
    table = f"kind = 'acp'\ncommand = {command}\nread_paths = ['{AGENT.parents[2]}']\n{more}"
    write_runners(tmp_path, f"[runners.agent]\n{table}\n")
    with pytest.raises(SystemExit) as left:
        call_command("runners", *arguments)
    return int(left.value.code or 0)


@pytest.mark.usefixtures("starts_processes")
def test_a_check_takes_a_turn(
    place: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(acp_check, "ASKED", "hello")
    assert by_hand(tmp_path, "check", "agent", more="env_from = ['NOT_SET']") == 0
    output = capfd.readouterr().out
    assert all(part in output for part in ("sandbox: ", "program: ", "NOT_SET", "answer: Hello"))
    assert not list((tmp_path / "home" / processes.HOMES).iterdir()), "a check leaves nothing"


@pytest.mark.usefixtures("starts_processes")
def test_a_check_says_what_is_missing(place: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert by_hand(tmp_path, "check", "agent", flags="--signed-out") == 1
    assert "nexus runners login agent" in capfd.readouterr().err
    write_runners(tmp_path, "[runners.agent]\nkind = 'acp'\npreset = 'claude'\ncommand = ['no-such-agent']")
    with pytest.raises(SystemExit):
        call_command("runners", "check", "agent")
    assert "npm install --global @agentclientprotocol/claude-agent-acp" in capfd.readouterr().err


@pytest.mark.usefixtures("starts_processes")
def test_a_check_without_an_answer_says_what_is_not_set(
    place: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(acp_check, "CHECK_SECONDS", 0.01)
    assert by_hand(tmp_path, "check", "agent", flags="--mute", more="env_from = ['NOT_SET']") == 1
    assert "it did not answer within 0.01 s; it may need NOT_SET" in capfd.readouterr().err


@pytest.mark.usefixtures("starts_processes")
@pytest.mark.parametrize(
    ("method", "code", "said"),
    [
        ("key", 0, "signed in"),
        ("page", 1, "it did not sign in: that is no key"),
        ("variable", 1, "set AGENT_KEY"),
        ("terminal", 0, "Welcome home. ['--signed-out', '--sign-in']"),
        ("broken", 1, "ended with exit code 3"),
        ("none", 1, "no method 'none'"),
    ],
)
def test_a_login_signs_in(
    place: Path,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    method: str,
    code: int,
    said: str,
) -> None:
    monkeypatch.setenv("TEST_KEY", "k")
    assert by_hand(tmp_path, "login", "agent", "--method", method, flags="--signed-out") == code
    output = capfd.readouterr()
    assert said in output.out + output.err and "it offers key: A key" in output.out


def test_it_lists_runners_and_presets(place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    by_hand(tmp_path, "list")
    assert "agent" in capsys.readouterr().out
    by_hand(tmp_path, "presets")
    assert "@google/gemini-cli" in capsys.readouterr().out
