"""The runner `ssh`, over a real server on loopback: turns of an agent on another machine, and how that is lost."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import suppress
from pathlib import Path
from subprocess import PIPE
from typing import Any

import psutil
import pytest

from nexus.control import selectors
from nexus.control.faults import Fault, FaultKind
from nexus.control.models import Entry, Outage, PoolAgent, Turn, TurnStatus
from nexus.control.runners import acp_check, ssh
from nexus.control.runners.base import RunnerFailed
from nexus.control.runners.configuration import Ssh, read
from nexus.control.runners.sandbox import in_words
from nexus.control.toolset import CONTROL
from nexus.control.worker.scheduling import Worker
from nexus.core.clock import now
from nexus.core.operations import runner as operations
from nexus.core.operations.caller import Caller
from nexus.core.operations.errors import NexusError
from nexus.core.waiting import READERS, WRITERS, in_thread
from tests.acceptance.hub import START_SECONDS
from tests.control.playing import pool, refused
from tests.control.pool import asend, ended
from tests.control.turns import Played, create
from tests.sshd import ALIAS, Sshd, named

AGENT = Path(__file__).with_name("acp_agent.py")
MARK = f"far-from-{os.getpid()}"  # a word of the agent's command line, and of what it leaves behind
Plays = Callable[..., Any]


@pytest.fixture(scope="module")
def far(starts_processes: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sshd]:
    """Another machine."""
    server = Sshd(tmp_path_factory.mktemp("far"))
    server.start()
    yield server
    server.stop()


@pytest.fixture
def moody(starts_processes: None, tmp_path: Path) -> Iterator[Sshd]:
    """Another one, to which anything may happen."""
    server = Sshd(tmp_path / "moody")
    server.start()
    yield server
    server.stop()


def runner_on(sshd: Sshd, *flags: str, **more: Any) -> Ssh:
    command = [sys.executable, str(AGENT), *flags, MARK]
    given: dict[str, Any] = {"host": ALIAS, "ssh_config": str(sshd.config), "command": command, **more}
    return Ssh.model_validate({"kind": "ssh", "name": "agent", **given})


@pytest.fixture
async def plays(committed: None, tmp_path: Path, far: Sshd) -> AsyncIterator[Plays]:
    """An agent there, whose turns are played; no process is left of it, and no connection."""
    place = tmp_path / "place"
    place.mkdir()

    async def play(*flags: str, sshd: Sshd = far, name: str = "ann", **more: Any) -> Played:
        where: dict[str, Any] = {each: more.pop(each) for each in ("preset", "write_paths", "cwd") if each in more}
        runner = runner_on(sshd, *flags, **more)
        order: dict[str, Any] = {"cwd": str(place), "preset": "sandboxed", **where, "host": runner.host}
        return Played(await in_thread(WRITERS, lambda: create(name, **order)), runner, ssh.take)

    before = clients()
    yield play
    assert not any(ssh._connections.values()) and clients() == before
    await gone()


def marked(mark: str = MARK) -> set[psutil.Process]:
    """The processes with a word in their command line; those of the agent on the other machine have `MARK`."""
    return {each for each in psutil.process_iter(["cmdline"]) if mark in " ".join(each.info["cmdline"] or [])}


def clients() -> set[psutil.Process]:
    return {each for each in psutil.Process().children(recursive=True) if named(each, "ssh")}


async def gone() -> None:
    """Return once no process of the agent is left."""
    await asyncio.to_thread(psutil.wait_procs, list(marked()), 60)
    assert marked() == set()


async def stalled(played: Played, content: str = "stall") -> asyncio.Task[Any]:
    """A turn that came to say something, and goes on."""
    turn = asyncio.create_task(played.turn(content))
    hearing = asyncio.create_task(played.heard.wait())
    await asyncio.wait((turn, hearing), return_when="FIRST_COMPLETED")
    assert not turn.done(), await turn
    return turn


async def test_a_connection_that_breaks_while_it_starts_is_named(far: Sshd) -> None:
    runner = runner_on(far)
    async with ssh.connected(runner) as master:
        _kill_the_master(far)
        with pytest.raises(RunnerFailed, match="the connection to far broke before the program started"):
            await ssh._forward(runner, master, "forward", "/tmp/there:/tmp/here")


# What it does there.


async def test_it_takes_turns_there(plays: Plays, tmp_path: Path) -> None:
    played = await plays()
    first = await played.turn("hello")
    assert (first.status, first.answer, first.input_tokens, first.output_tokens) == (TurnStatus.DONE, "Hello", 7, 3)
    assert (await played.turn("shell pwd")).answer == f"0 {tmp_path}/place\n"
    assert not (tmp_path / "pool").exists(), "it has no HOME here"


async def test_its_environment_is_that_of_the_host_and_what_is_named(
    plays: Plays, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TEST_KEY", "of-the-hub")
    monkeypatch.setenv("TEST_OTHER", "stays")
    odd = 'it\'s "a"\n$(id) `id` \\ ; ü'
    played = await plays(env_from=["TEST_KEY"], env={"ODD": odd})
    there = json.loads((await played.turn("environment")).answer or "")
    assert there["ODD"] == odd and there["TEST_KEY"] == "***" and there["SSH_CONNECTION"]
    assert "TEST_OTHER" not in there and not [name for name in there if name.startswith("NEXUS")]


async def test_any_name_of_a_directory_reaches_it(plays: Plays, tmp_path: Path) -> None:
    odd = tmp_path / '-it\'s "a"\n$(touch here) `id`; ü'
    odd.mkdir()
    assert (await (await plays(cwd=str(odd))).turn("shell pwd")).answer == f"0 {odd}\n"
    assert list(odd.iterdir()) == []


async def test_it_reaches_the_bus_as_itself(plays: Plays) -> None:
    played = await plays(mcp_servers={"other": {"command": ["other", "--stdio"]}})
    assert json.loads((await played.turn("bus agent_whoami")).answer or "")["data"]["agent_id"] == "ann"
    servers = json.loads((await played.turn("servers")).answer or "")
    assert [server["name"] for server in servers] == ["nexus", "other"]
    assert Path(servers[0]["command"]).is_absolute() and not Path(servers[0]["args"][-1]).parent.exists()


async def test_it_opens_no_file_here_and_runs_nothing(plays: Plays, tmp_path: Path) -> None:
    played = await plays(preset="trusted")
    file = tmp_path / "place" / "new.txt"
    for what in (f"read {AGENT}", f"write {file} x", "run true"):
        assert "Method not found" in ((await played.turn(what)).answer or ""), what
    assert not file.exists()


@pytest.mark.parametrize(
    ("kind", "path", "answer", "asked"),
    [
        ("edit", "notes/new.txt", "yes ", 0),
        ("edit", "other.txt", "no ", 1),
        ("edit", "notes/away/keys", "no ", 0),  # a link that leads out of its directory
        ("read", "notes/away/../place/notes/new.txt", "yes ", 0),
        ("edit", "\0", "no ", 0),
    ],
)
async def test_what_it_asks_for_is_judged_by_what_is_there(
    plays: Plays, tmp_path: Path, kind: str, path: str, answer: str, asked: int
) -> None:
    (tmp_path / "away").mkdir()
    (tmp_path / "place" / "notes").mkdir(parents=True)
    (tmp_path / "place" / "notes" / "away").symlink_to(tmp_path / "away")
    played = await plays(write_paths=["notes"])
    said = (await played.turn(f"may {kind} {path and tmp_path / 'place' / path}")).answer or ""
    assert said == answer
    assert len(played.asked) == asked


async def test_its_own_session_goes_on(plays: Plays) -> None:
    played = await plays("--loads")
    assert (await played.turn("session")).answer == (await played.turn("session")).answer


async def test_its_exit_code_is_told(plays: Plays, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEST_SECRET", "s3cret")
    played = await plays(env_from=["TEST_SECRET"])
    for code, said in (("3", r"exit code 3\); it said: the key is \*\*\*$"), ("200", "its exit code was 200$")):
        with pytest.raises(RunnerFailed, match=said) as failed:
            await played.turn(f"die {code}")
        assert not failed.value.is_lost


async def test_runs_share_a_connection_that_ends_with_the_last(plays: Plays, far: Sshd) -> None:
    turns = [await stalled(await plays(name=name)) for name in ("ann", "bob")]
    [shared] = ssh._connections[ALIAS, str(far.config)]
    assert shared.users == 2 and len([each for each in marked("-N") if each in clients()]) == 1
    for turn in turns:
        turn.cancel()
        await asyncio.wait((turn,))
    assert not shared.stands


async def test_more_runs_than_a_connection_carries_get_another(
    plays: Plays, far: Sshd, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ssh, "MOST_RUNS", 1)
    turns = [await stalled(await plays(name=name)) for name in ("ann", "bob")]
    assert len(ssh._connections[ALIAS, str(far.config)]) == 2
    for turn in turns:
        turn.cancel()
        await asyncio.wait((turn,))


# How it ends.


@pytest.mark.parametrize("mode", ["stall", "ignore", "hold"])
async def test_a_cancelled_turn_is_over_when_nothing_runs_there_any_more(plays: Plays, mode: str) -> None:
    played = await plays()
    turn = await stalled(played, mode)
    while not turn.done():  # as a worker does, which has stored the end already
        turn.cancel()
        await asyncio.wait((turn,), timeout=0.1)
    assert turn.cancelled() and marked() == set()
    assert (await played.entries())[0].content == "I stall"


async def test_what_it_left_behind_ends_with_the_turn(plays: Plays) -> None:
    assert (await (await plays()).turn(f"daemon {MARK}")).answer == "left one behind"
    assert marked() == set()


def _kill_clients(word: str) -> None:
    """Kill those with this word in their command line; others may end meanwhile."""
    for client in clients():
        with suppress(psutil.NoSuchProcess):
            if word in client.cmdline():
                client.kill()


def _kill_the_client(moody: Sshd) -> None:
    _kill_clients(ssh.COMMAND)


def _kill_the_master(moody: Sshd) -> None:
    _kill_clients("-N")


@pytest.mark.parametrize(
    "breaks", [_kill_the_client, _kill_the_master, Sshd.kill_connections, Sshd.stop], ids=lambda each: each.__name__
)
async def test_a_connection_that_breaks_loses_the_turn_and_ends_the_agent(
    plays: Plays, moody: Sshd, breaks: Callable[[Sshd], None]
) -> None:
    played = await plays(sshd=moody)
    turn = await stalled(played, "ignore")
    there = marked()
    assert there
    breaks(moody)
    with pytest.raises(RunnerFailed, match="the connection to far broke in the middle of the turn") as failed:
        await turn
    assert failed.value.is_lost
    await gone()
    assert not any(each.is_running() for each in there)


@pytest.mark.usefixtures("starts_processes")
def test_it_hears_signs_of_life_while_the_program_reads_nothing(tmp_path: Path) -> None:
    reads = tmp_path / "reads"
    os.mkfifo(reads)
    program = "import sys; open(sys.argv[1]).close(); print(len(sys.stdin.readline()), flush=True)"
    armed = "signal.alarm(SILENT_SECONDS); os.write(2, b'armed\\n')"
    source = ssh.FAR.read_text().replace("signal.alarm(SILENT_SECONDS)", armed)
    given = {
        "source": source, "mark": "m", "env": {}, "cwd": None, "paths": [],
        "files": {path.name: path.read_text() for path in ssh.SHIPPED},
        "command": [sys.executable, "-c", program, str(reads)],
    }  # fmt: skip
    far = subprocess.Popen(["sh", "-c", ssh.COMMAND], stdin=PIPE, stdout=PIPE, stderr=PIPE)
    assert far.stdin and far.stdout and far.stderr
    clock = threading.Timer(START_SECONDS, far.kill)  # where it waits for the program instead
    clock.start()
    with far:
        far.stdin.write(json.dumps(given).encode() + b"\n")
        far.stdin.write(b"x" * 1_000_000 + b"\n\n")  # more than a pipe holds, and a sign of life
        far.stdin.flush()
        assert [far.stderr.readline() for _ in range(3)] == [b"armed\n"] * 3
        reads.write_text("")
        answer = far.stdout.read().split()
        assert answer[-1] == b"1000001"
    clock.cancel()


@pytest.mark.usefixtures("starts_processes")
def test_it_says_of_a_path_with_a_nul_that_it_is_none() -> None:
    given = {
        "source": ssh.FAR.read_text(), "mark": "m", "env": {}, "cwd": "/a\0b", "paths": ["/a\0b"], "files": {},
        "command": ["true"],
    }  # fmt: skip
    order = json.dumps(given).encode() + b"\n"
    far = subprocess.run(["sh", "-c", ssh.COMMAND], input=order, capture_output=True, check=True)
    assert "a path, a variable or a name is not valid there" in json.loads(far.stdout)["error"]
    assert far.stderr == b""


async def test_a_host_that_answers_no_more_is_lost_and_ends_the_agent_by_itself(
    plays: Plays, moody: Sshd, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    impatient = tmp_path / "far.py"
    impatient.write_text(ssh.FAR.read_text().replace("SILENT_SECONDS = 30", "SILENT_SECONDS = 2"))
    monkeypatch.setattr(ssh, "FAR", impatient)
    monkeypatch.setattr(ssh, "BEAT_SECONDS", 0.1)
    monkeypatch.setattr(ssh, "OURS", ("ServerAliveInterval=1", "ServerAliveCountMax=1", *ssh.OURS))  # the first counts
    turn = await stalled(await plays(sshd=moody), "ignore")
    moody.freeze()
    with pytest.raises(RunnerFailed, match="the connection to far broke") as failed:
        await turn
    assert failed.value.is_lost
    await gone()


# What is wrong there.


def _unknown(sshd: Sshd) -> None:
    sshd.known.write_text("")


def _changed(sshd: Sshd) -> None:
    sshd.known.write_text(sshd.known.read_text().partition(" ")[0] + " ")
    sshd.make_key("other")
    kind, key, *_ = (sshd.directory / "other.pub").read_text().split()
    sshd.known.write_text(f"[127.0.0.1]:{sshd.port} {kind} {key}\n")


def _refuses(sshd: Sshd) -> None:
    sshd.make_key("client")


@pytest.mark.parametrize(
    ("spoil", "why", "fault"),
    [
        (_unknown, "cannot be reached by ssh: its host key is not known", "key"),
        (_changed, "cannot be reached by ssh: its host key is not the one that is known", "key"),
        (_refuses, "cannot be reached by ssh: it takes none of your keys", "key"),
        (Sshd.stop, "cannot be reached by ssh; ssh said: .*Connection refused", "unreachable"),
    ],
    ids=lambda each: getattr(each, "__name__", ""),
)
async def test_a_host_that_lets_nobody_in_fails_the_turn(
    plays: Plays, moody: Sshd, spoil: Callable[[Sshd], None], why: str, fault: str
) -> None:
    spoil(moody)
    with pytest.raises(RunnerFailed, match=f"far {why}") as failed:
        await (await plays(sshd=moody)).turn("hello")
    assert not failed.value.is_lost and failed.value.fault == Fault(FaultKind(fault))


async def test_a_host_that_nobody_knows_fails_the_turn(plays: Plays, tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    played = await plays(host="nowhere.invalid", ssh_config=str(tmp_path / "empty"))
    with pytest.raises(RunnerFailed, match=r"nowhere\.invalid cannot be reached by ssh"):
        await played.turn("hello")


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        (
            "AllowStreamLocalForwarding no",
            "far forwards no socket to the bus: its sshd needs AllowStreamLocalForwarding",
        ),
        ("ForceCommand exit 127", "far has no python3 on its PATH"),
        ("ForceCommand echo no; exit 1", r"far could not start python3.*\(exit code 1\)"),
        ("ForceCommand yes", "far answers something else"),
    ],
)
async def test_a_host_that_starts_nothing_fails_the_turn(plays: Plays, tmp_path: Path, settings: str, why: str) -> None:
    sshd = Sshd(tmp_path / "strict", settings)
    sshd.start()
    try:
        with pytest.raises(RunnerFailed, match=why):
            await (await plays(sshd=sshd)).turn("hello")
    finally:
        sshd.stop()


async def test_what_a_login_shell_prints_first_is_passed_over(plays: Plays, tmp_path: Path) -> None:
    sshd = Sshd(tmp_path / "chatty", 'ForceCommand printf "welcome\\n{}\\nto"; sh -c "$SSH_ORIGINAL_COMMAND"')
    sshd.start()
    try:
        assert (await (await plays(sshd=sshd)).turn("hello")).answer == "Hello"
    finally:
        sshd.stop()


async def test_a_directory_or_a_program_that_is_not_there_fails_the_turn(plays: Plays, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "place")
    for wrong, why in (
        ({"cwd": str(tmp_path / "none")}, f"on far: {tmp_path}/none: No such file or directory"),
        ({"cwd": str(tmp_path / "link")}, f"on far: {tmp_path}/link is {tmp_path}/place there"),
        ({"command": ["no such program"]}, "on far: there is no program 'no such program' on the PATH there, /"),
    ):
        with pytest.raises(RunnerFailed, match=why):
            await (await plays(name=f"agent-{len(why)}", **wrong)).turn("hello")


@pytest.mark.parametrize(
    "answer",
    [
        {"scratch": "8080:127.0.0.1:22:/x"},  # would forward a port of the hub
        {"scratch": "/tmp/-x/../a b"},
        {"scratch": 7},
        {"error": ["x"]},
        {},
    ],
)
async def test_a_host_that_answers_nonsense_gets_nothing(
    plays: Plays, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: dict[str, Any]
) -> None:
    lies = tmp_path / "lies.py"
    lies.write_text(
        f"import json\ndef main(given):\n    print(json.dumps({{'nexus': given['mark'], **{answer!r}}}), flush=True)\n"
        "    import sys; sys.stdin.read()\n"
    )
    monkeypatch.setattr(ssh, "FAR", lies)
    with pytest.raises(RunnerFailed, match="far"):
        await (await plays()).turn("hello")


# In the pool.


@pytest.fixture
def file(tmp_path: Path, far: Sshd, configure: Callable[..., None]) -> Path:
    """runners.toml, with a runner over there, and another one here."""
    home = tmp_path / "home"
    home.mkdir()
    configure(control=True, home=home)
    file = home / "runners.toml"
    command = json.dumps([sys.executable, str(AGENT), MARK])
    file.write_text(
        f'default = "there"\n[runners.there]\nkind = "ssh"\nhost = "{ALIAS}"\nssh_config = "{far.config}"\n'
        f'command = {command}\ntake_over = ["agent", "{{session}}"]\n'
        f'[runners.here]\nkind = "acp"\ncommand = {command}\n'
    )
    return file


async def test_the_pool_runs_it_and_says_when_it_was_lost(
    worker: Worker, file: Path, tmp_path: Path, far: Sshd, configure: Callable[..., None]
) -> None:
    configure(control=True, home=file.parent, pool_turns=4)
    place = str(tmp_path / "only-there")
    await in_thread(WRITERS, lambda: pool("pool_create_agent", agent_id="ann", cwd=place))
    turn = await ended(await asend("ann", "hello"))
    assert turn.status == "failed" and f"on far: {place}: No such file" in (turn.why or "")
    Path(place).mkdir()
    turn = await ended(await asend("ann", "hello"))
    assert (turn.status, turn.answer) == ("done", "Hello")
    turn = await in_thread(READERS, lambda: Turn.objects.select_related("agent").get(pk=turn.pk))
    by_hand = await in_thread(READERS, lambda: selectors.resume_command(turn))
    assert (by_hand or "").startswith(f"ssh -F {far.config} -t far 'cd {place} && agent session-"), by_hand
    lost = await asend("ann", "stall")
    stalls = Entry.objects.filter(turn=lost, content="I stall")
    while not await in_thread(READERS, stalls.exists):
        await asyncio.sleep(0.01)
    _kill_the_master(far)
    turn = await ended(lost)
    assert (turn.status, turn.outcome) == ("interrupted", "lost") and "the connection to far broke" in (turn.why or "")
    assert await in_thread(READERS, lambda: Turn.objects.needing_person().filter(pk=lost).exists())


async def test_a_run_waits_for_a_host_that_is_away(worker: Worker, file: Path, tmp_path: Path, far: Sshd) -> None:
    await in_thread(WRITERS, lambda: pool("pool_create_agent", agent_id="ann", cwd=str(tmp_path)))
    far.stop()
    run = await asend("ann", "hello")
    outages = Outage.objects.filter(runner="there", fault="unreachable")
    while not await in_thread(READERS, outages.exists):
        await asyncio.sleep(0.01)
    assert (await in_thread(READERS, lambda: Turn.objects.get(pk=run))).status == "queued"
    far.start()
    await in_thread(WRITERS, lambda: outages.update(until=now()) and Turn.objects.update(due_at=now()))
    turn = await ended(run)
    assert (turn.status, turn.answer, turn.put_back) == ("done", "Hello", 1)
    assert not await in_thread(READERS, outages.exists)


def test_its_agents_and_those_below_live_there(db: None, file: Path, tmp_path: Path) -> None:
    pool("pool_create_agent", agent_id="lead", preset="trusted", cwd="/srv/./shop/")
    lead = PoolAgent.objects.get()
    assert (lead.host, lead.cwd, lead.machine) == (ALIAS, "/srv/shop", "hub")
    below = {"parent_agent_id": "lead", "cwd": "/srv/shop/a"}
    assert refused("pool_create_agent", **below, model="here")["details"]["rule"] == "host"
    assert refused("pool_create_agent", **below, model="rehearsal")["details"]["rule"] == "host"
    pool("pool_create_agent", agent_id="low", **below, model="there")
    pool("pool_create_agent", agent_id="near", preset="trusted", cwd=str(tmp_path), model="here")
    assert refused("pool_create_agent", parent_agent_id="near", model="there")["details"]["rule"] == "host"
    below_itself = {"agent_id": "deep", "model": "here", "cwd": "/srv/shop"}
    caller = Caller("test", agent_id="lead")
    answer = operations.run(CONTROL, caller, "pool_create_agent", below_itself)
    assert answer["error"]["details"]["rule"] == "host"


@pytest.mark.parametrize(
    ("order", "code", "why"),
    [
        ({}, "VALIDATION_ERROR", "Name the agent's directory on the host far as cwd"),
        ({"cwd": "shop"}, "VALIDATION_ERROR", "absolute"),
        ({"cwd": "/srv/shop", "worktree": True}, "WORKTREE_REFUSED", "live on far, and worktrees are made at the hub"),
        ({"cwd": "/srv/shop", "allowed_write_paths": ["../other"]}, "NOT_PERMITTED", "does not lie below"),
    ],
)
def test_an_order_that_nobody_can_carry_out_there_is_refused(
    db: None, file: Path, order: dict[str, Any], code: str, why: str
) -> None:
    error = refused("pool_create_agent", agent_id="ann", **order)
    assert error["code"] == code and why in error["message"]
    assert not PoolAgent.objects.exists()


async def test_where_a_sandbox_is_required_it_does_not_run(
    plays: Plays, file: Path, configure: Callable[..., None]
) -> None:
    configure(control=True, home=file.parent, pool_sandbox="required")
    error = await in_thread(WRITERS, lambda: refused("pool_create_agent", agent_id="bob", cwd="/srv/shop"))
    assert error["code"] == "NOT_PERMITTED" and error["details"]["rule"] == "sandbox"
    played = await plays()
    with pytest.raises(NexusError, match="none reaches the host"):
        await played.turn("hello")
    assert "no sandbox of Nexus reaches far" in in_words(played.runner)


async def test_an_agent_whose_runner_moved_takes_no_turn(worker: Worker, file: Path, tmp_path: Path) -> None:
    (tmp_path / "place").mkdir()
    place = str(tmp_path / "place")
    await in_thread(WRITERS, lambda: pool("pool_create_agent", agent_id="ann", cwd=place))
    file.write_text(file.read_text().replace(f'host = "{ALIAS}"', 'host = "other"'))
    turn = await ended(await asend("ann", "hello"))
    assert turn.status == "failed" and "is on far, and its runner there starts programs on other" in (turn.why or "")
    file.write_text(
        file.read_text().replace("runners.there]", "runners.gone]").replace("runners.here]", "runners.there]")
    )
    turn = await ended(await asend("ann", "hello"))
    assert turn.status == "failed" and "starts programs where its worker is" in (turn.why or "")


@pytest.mark.parametrize(
    ("table", "why"),
    [
        ('kind = "ssh"\ncommand = ["a"]', "host"),
        ('kind = "ssh"\nhost = "-oProxyCommand=id"\ncommand = ["a"]', "host"),
        ('kind = "ssh"\nhost = "ann@-oProxyCommand=id"\ncommand = ["a"]', "host"),
        ('kind = "ssh"\nhost = "-l root@far"\ncommand = ["a"]', "host"),
        ('kind = "ssh"\nhost = "far\\n"\ncommand = ["a"]', "host"),
        ('kind = "ssh"\nhost = "far id"\ncommand = ["a"]', "host"),
        ('kind = "ssh"\nhost = ""\ncommand = ["a"]', "host"),
        ('kind = "ssh"\nhost = "far"\ncommand = []', "command"),
        ('kind = "ssh"\nhost = "far"\ncommand = ["a"]\nssh_config = "-oX"', "ssh_config"),
        ('kind = "ssh"\nhost = "far"\ncommand = ["a"]\nnetwork = false', "network"),
        ('kind = "ssh"\nhost = "far"\ncommand = ["a"]\nread_paths = ["/x"]', "read_paths"),
        ('kind = "ssh"\nhost = "far"\ncommand = ["a"]\nsign_in = ["~/.x"]', "sign_in"),
        ('kind = "ssh"\nhost = "far"\ncommand = ["a"]\nfallback = "rehearsal"', "another host"),
        (
            'kind = "ssh"\nhost = "far"\ncommand = ["a"]\n'
            '[runners.two]\nkind = "ssh"\nhost = "far"\ncommand = ["a"]\nssh_config = "~/other"',
            "another runner reaches far",
        ),
        ('kind = "acp"\nhost = "far"\ncommand = ["a"]', "host"),
        ('kind = "ssh"\nhost = "far"\npreset = "none"', "preset"),
    ],
)
def test_a_runner_that_says_what_cannot_hold_is_refused(tmp_path: Path, table: str, why: str) -> None:
    file = tmp_path / "runners.toml"
    file.write_text(f"[runners.one]\n{table}\n")
    with pytest.raises(NexusError, match=why):
        read(file)


def test_a_preset_gives_what_holds_there(tmp_path: Path) -> None:
    file = tmp_path / "runners.toml"
    file.write_text('[runners.one]\nkind = "ssh"\nhost = "ann@build-1.example.com"\npreset = "codex"\n')
    runner = read(file).by_name["one"]
    assert isinstance(runner, Ssh) and runner.command == ["codex-acp"] and runner.env == {"NO_BROWSER": "1"}


async def test_a_check_takes_a_turn_there(committed: None, far: Sshd, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(acp_check, "ASKED", "hello")
    steps = list[str]()
    await acp_check.check(runner_on(far), say=steps.append)
    assert steps[1].startswith("host: far, in /") and steps[2] == "answer: Hello"
    with pytest.raises(RunnerFailed, match="sign in there"):
        await acp_check.login(runner_on(far), method=None, say=steps.append)
