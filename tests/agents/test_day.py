"""A day of the published agents in the pool: each does the same, over models that do what they are told.

`pytest tests/agents -m ""` plays this, `make check` one agent. An agent that is missing in NEXUS_AGENTS is installed
from npm, at the version of presets.toml; in CI it is removed after its day, because all of them together take two
gigabytes. The table of what holds stands in docs/reference/agents.md; NEXUS_AGENTS_TABLE=write writes it anew.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import pytest

from inbox.models import Message
from nexus.control.agents.transcript import SESSION
from nexus.control.agents.turns import Ended
from nexus.control.models import Entry, PoolAgent, Role
from nexus.control.runners import acp, processes, sandbox
from nexus.control.runners.base import RunnerFailed
from nexus.control.runners_file import Acp, presets
from nexus.core.waiting import WRITERS, in_thread
from tests.acceptance.pool import Pool as Hub
from tests.acceptance.pool import until
from tests.agents.install import install
from tests.agents.providers import HANG, Provider, Round, play, serve
from tests.control.playing import pool
from tests.control.turns import Played
from tests.git import git

pytestmark = [pytest.mark.usefixtures("runs_published"), pytest.mark.sqlite]
ROOT = Path(__file__).parents[2]
TABLE = ROOT / "docs" / "reference" / "agents.md"
INSTALLED = Path(os.environ.get("NEXUS_AGENTS", ROOT / ".venv" / "agents"))
OUTSIDE = f"/usr/share/nexus-agents-{os.getpid()}"  # nobody writes there from the sandbox
GONE_SECONDS = 10  # the system may take so long to end what was killed
STEPS = {
    "worktree": "starts in a worktree",
    "read": "reads a file",
    "edit": "edits a file",
    "run": "runs a command",
    "message": "sends a message through the hub, without a question",
    "outside": "is refused a write outside, and reads why",
    "asks": "asks an operator once, if its ceiling requires that",
    "says": "has in its transcript what its model said, and nothing else",
    "tokens": "counts the tokens of its turn",
    "cancel": "is cancelled, and leaves no process",
    "killed": "is killed; its turn fails with the reason",
    "resumed": "continues in the same session",
    "model": "takes the model that an operator chose",
}
Tool = tuple[str, dict[str, Any] | str]


@dataclass(frozen=True)
class Agent:
    """How a published agent is started and what its tools are called."""

    read: Callable[[str], Tool]
    write: Callable[[str, str], Tool]  # of a new file, with this text
    edit: Callable[[str], Tool]  # `one` of the file becomes `two`
    run: Callable[[str], Tool]
    bus: str  # the prefix of its names for the bus's tools
    env: Callable[[str], dict[str, str]]  # for the provider at this address
    model: str | None = None  # another one that it offers
    asked: str = ""  # part of that one's name for the provider, if it is another
    lacks: dict[str, str] = field(default_factory=dict)  # steps that do not hold, and why
    home: Callable[[str], dict[str, str]] = lambda address: {}  # files that it signs in with


def claude(prefix: str = "", **more: Any) -> Agent:
    return Agent(
        read=lambda path: (f"{prefix}Read", {"file_path": path}),
        write=lambda path, text: (f"{prefix}Write", {"file_path": path, "content": text}),
        edit=lambda path: (f"{prefix}Edit", {"file_path": path, "old_string": "one", "new_string": "two"}),
        run=lambda line: (f"{prefix}Bash", {"command": line, "description": "Run it", "timeout": 60_000}),
        bus="mcp__nexus__",
        env=lambda address: {"ANTHROPIC_BASE_URL": address, "ANTHROPIC_API_KEY": "k"},
        **more,
    )


def codex(**more: Any) -> Agent:
    def run(line: str) -> Tool:
        return "exec_command", {"cmd": line}

    return Agent(
        read=lambda path: run(f"cat {path}"),
        write=lambda path, text: run(f"echo {text} > {path}"),
        edit=lambda path: run(f"sed -i s/one/two/ {path}"),
        run=run,
        bus="mcp__nexus/",
        **{"lacks": {"asks": "it does not ask for what the sandbox limits"}, **more},
    )


def codex_config(address: str) -> dict[str, Any]:
    provider = {"name": "fake", "base_url": f"{address}/v1", "wire_api": "responses", "env_key": "OPENAI_API_KEY"}
    return {"model_provider": "fake", "model_providers": {"fake": provider}}


def codex_toml(address: str) -> str:
    provider = codex_config(address)["model_providers"]["fake"]
    lines = (f"{name} = {json.dumps(value)}" for name, value in provider.items())
    return 'model_provider = "fake"\n[model_providers.fake]\n' + "\n".join(lines)


def opencode_config(address: str) -> str:
    models = {name: {"name": name} for name in ("fake", "other")}
    options = {"baseURL": f"{address}/v1", "apiKey": "k"}
    provider = {"npm": "@ai-sdk/openai-compatible", "name": "fake", "options": options, "models": models}
    return json.dumps({"provider": {"fake": provider}, "model": "fake/fake", "small_model": "fake/fake"})


def cline_run(line: str) -> Tool:
    return "run_commands", {"commands": [line]}


def cline_providers(address: str) -> str:
    settings = {"provider": "openai-compatible", "apiKey": "k", "model": "fake", "baseUrl": f"{address}/v1"}
    known = {"openai-compatible": {"settings": settings, "updatedAt": "2026-01-01T00:00:00Z", "tokenSource": "manual"}}
    return json.dumps({"version": 1, "lastUsedProvider": "openai-compatible", "modes": {}, "providers": known})


def file_tools(read: str, write: str, edit: str, path: str, old: str, new: str) -> dict[str, Any]:
    return {
        "read": lambda at: (read, {path: at}),
        "write": lambda at, text: (write, {path: at, "content": text}),
        "edit": lambda at: (edit, {path: at, old: "one", new: "two"}),
    }


AGENTS = {
    "claude": claude(model="haiku", asked="haiku"),
    "claude-code": claude("mcp__acp__", model="haiku", asked="haiku", lacks={"tokens": "it does not count them"}),
    "codex": codex(
        model="gpt-6-sol",
        env=lambda address: {
            "OPENAI_API_KEY": "k",
            "MODEL_PROVIDER": "fake",
            "CODEX_CONFIG": json.dumps(codex_config(address)),
        },
    ),
    "codex-zed": codex(
        model="gpt-5.4",
        env=lambda address: {"OPENAI_API_KEY": "k"},
        home=lambda address: {"~/.codex/config.toml": codex_toml(address)},
        lacks={
            "asks": "it does not ask for what the sandbox limits",
            "tokens": "it does not count them",
        },
    ),
    "gemini": Agent(
        read=lambda path: ("read_file", {"file_path": path}),
        write=lambda path, text: ("write_file", {"file_path": path, "content": text}),
        edit=lambda path: (
            "replace",
            {"file_path": path, "instruction": "Count on.", "old_string": "one", "new_string": "two"},
        ),
        run=lambda line: ("run_shell_command", {"command": line}),
        bus="mcp_nexus_",
        model="gemini-2.5-pro",
        env=lambda address: {"GOOGLE_GEMINI_BASE_URL": address, "GEMINI_API_KEY": "k"},
        lacks={"resumed": "it cannot load a session whose turn was killed; a new session gets the conversation so far"},
    ),
    "opencode": Agent(
        **file_tools("read", "write", "edit", "filePath", "oldString", "newString"),
        run=lambda line: ("bash", {"command": line, "description": "Run it"}),
        bus="nexus_",
        model="fake/other",
        asked="other",
        env=lambda address: {"OPENCODE_CONFIG_CONTENT": opencode_config(address)},
        lacks={"asks": "it writes in its directory without a question"},
    ),
    "qwen": Agent(
        **file_tools("read_file", "write_file", "edit", "file_path", "old_string", "new_string"),
        run=lambda line: ("run_shell_command", {"command": line, "is_background": False}),
        bus="mcp__nexus__",
        env=lambda address: {"OPENAI_BASE_URL": f"{address}/v1", "OPENAI_API_KEY": "k", "OPENAI_MODEL": "fake"},
        lacks={"model": "it offers the one that its variables name"},
    ),
    "cline": Agent(
        read=lambda path: ("read_files", {"files": [{"path": path}]}),
        write=lambda path, text: cline_run(f"echo {text} > {path}"),
        edit=lambda path: cline_run(f"sed -i s/one/two/ {path}"),
        run=lambda line: cline_run(line),
        bus="nexus__",
        env=lambda address: {"CLINE_API_KEY": "k", "CLINE_PROVIDER": "openai-compatible", "CLINE_MODEL": "fake"},
        home=lambda address: {"~/.cline/data/settings/providers.json": cline_providers(address)},
        lacks={
            "message": "it does not offer its model the tools of MCP servers that the client names",
            "asks": "it does not ask for paths: here its model can write only with commands",
            "tokens": "it does not count them",
            "model": "it offers one",
        },
    ),
}
IN_CHECK = ("codex",)  # claude-code and gemini are played in test_guard.py and test_attach.py
DAYS = [pytest.param(name, marks=() if name in IN_CHECK else pytest.mark.long) for name in AGENTS]


def given(agent: Agent, address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the operator has set and keeps at home for an agent, with the models at this address."""
    for variable, value in agent.env(address).items():
        monkeypatch.setenv(variable, value)
    for file, text in agent.home(address).items():
        place = Path(file).expanduser()
        place.parent.mkdir(parents=True)
        place.write_text(text)


@pytest.fixture
def address(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The models, at work."""
    Provider.asked.clear()
    Provider.over.clear()
    Provider.hanging.clear()
    server, address = serve()
    yield address
    Provider.over.set()
    server.shutdown()


@dataclass
class Day:
    """One agent's day."""

    name: str
    agent: Agent
    played: Played
    cwd: str
    holds: dict[str, str] = field(default_factory=dict)

    def note(self, step: str, holds: bool, why: str = "") -> None:
        self.holds[step] = "" if holds else (why or "it does not")

    async def turn(self, *rounds: Round) -> Ended:
        return await self.played.turn(play(*rounds))

    async def said(self) -> set[str]:
        entries = await self.played.entries()
        return {entry.content for entry in entries if entry.role != Role.TOOL and entry.content}

    async def results(self) -> str:
        entries = await self.played.entries()
        return "\n".join(entry.content for entry in entries if entry.role == Role.TOOL)

    async def hang(self) -> asyncio.Task[Any]:
        """A turn whose model does not answer."""
        Provider.hanging.clear()
        turn = asyncio.create_task(self.played.turn(play(HANG)))
        waiting = asyncio.create_task(asyncio.to_thread(Provider.hanging.wait, 120))
        await asyncio.wait((turn, waiting), return_when="FIRST_COMPLETED")
        return turn

    def processes(self) -> list[psutil.Process]:
        """Those that run this day's agent: another run on this machine may have started the same one."""
        folder, home = str(INSTALLED / f"{self.name}-"), processes.home_of(self.played.agent)
        return [
            process
            for process in psutil.process_iter(["cmdline", "environ"])
            if any(word.startswith(folder) for word in process.info["cmdline"] or [])
            and (process.info["environ"] or {}).get("HOME") == home
        ]


@pytest.fixture
async def day(
    request: pytest.FixtureRequest,
    committed: None,
    tmp_path: Path,
    configure: Callable[..., None],
    monkeypatch: pytest.MonkeyPatch,
    address: str,
) -> AsyncIterator[Day]:
    """An agent of the pool with a worktree of its own, and nothing of its day done yet."""
    if not sandbox.state().works:
        pytest.skip(f"no sandbox on this machine: {sandbox.state().why}")
    name = request.param
    agent, preset = AGENTS[name], presets()[name]
    program = await asyncio.to_thread(install, name, INSTALLED)
    configure(home=tmp_path / "hub", control=True)
    (tmp_path / "hub").mkdir()
    operator = tmp_path / "operator"
    operator.mkdir()
    monkeypatch.setenv("HOME", str(operator))
    given(agent, address, monkeypatch)
    repository = tmp_path / "shop"
    (repository / "out").mkdir(parents=True)
    (repository / "out" / "notes.txt").write_text("number one\n")
    git(repository, "init", "--quiet")
    git(repository, "add", ".")
    git(repository, "commit", "--quiet", "-m", "Begin")
    fields = {key: value for key, value in preset.items() if key not in ("package", "tried")}
    runner = Acp.model_validate(
        {
            "kind": "acp",
            "name": name,
            **fields,
            "command": [str(program), *preset["command"][1:]],
            "read_paths": [str(INSTALLED)],
            "sign_in": [*preset["sign_in"], *agent.home(address)],
        }
    )

    def create() -> PoolAgent:
        pool("pool_create_agent", agent_id="ops", preset="worker", cwd=str(repository))
        pool(
            "pool_create_agent", agent_id="ann", preset="trusted", cwd=str(repository), worktree=True,
            allowed_write_paths=["out"],
        )  # fmt: skip
        return PoolAgent.objects.get(agent_id="ann")

    row = await in_thread(WRITERS, create)
    yield Day(name, agent, Played(row, runner, acp.take), row.cwd)
    if os.environ.get("CI"):
        shutil.rmtree(INSTALLED / f"{name}-{preset['tried'][-1]}")


@pytest.mark.parametrize("day", DAYS, indirect=True)
async def test_a_day(day: Day) -> None:
    agent, out = day.agent, f"{day.cwd}/out"
    message = {"from_agent_id": "ann", "subject": "Done", "body": "It is done.", "project_root": day.cwd}
    to = {"target": {"strategy": "direct", "agent_id": "ops"}}
    calls: Sequence[Tool] = [
        agent.read(f"{out}/notes.txt"),
        agent.edit(f"{out}/notes.txt"),
        agent.write(f"{out}/new.txt", "fresh"),
        agent.run(f"pwd > {out}/ran.txt"),
        (f"{agent.bus}message_create", {**message, **to}),
        agent.write(f"{day.cwd}/elsewhere", "more"),
        agent.write(OUTSIDE, "no"),  # the last: some end their turn when they are refused
    ]
    day.played.decide = lambda subject: subject.endswith("/elsewhere")
    ended = await day.turn(*([call] for call in calls), "worked")
    day.note("tokens", ended.input_tokens > 0 and ended.output_tokens > 0)
    results = await day.results()
    day.note("worktree", Path(out, "ran.txt").is_file() and Path(out, "ran.txt").read_text().strip() == day.cwd)
    day.note("read", "number one" in results or await _was_sent("number one"))
    edited = Path(out, "notes.txt").read_text() == "number two\n"
    day.note("edit", edited and Path(out, "new.txt").read_text().strip() == "fresh")
    day.note("run", Path(out, "ran.txt").is_file())
    sent = await in_thread(WRITERS, lambda: list(Message.objects.filter(subject="Done").values_list("from_agent_id")))
    asked = [subject for subject in day.played.asked if "message_create" in subject]
    day.note("message", len(sent) == 1 and asked == [], f"sent: {sent}, asked: {day.played.asked}")
    refused = [entry for entry in await day.played.entries() if _failed(entry)]
    day.note("outside", not Path(OUTSIDE).exists() and bool(refused))
    asked = [subject for subject in day.played.asked if subject == f"write {day.cwd}/elsewhere"]
    day.note("asks", len(asked) == 1, f"asked: {day.played.asked}")

    turn = await day.hang()
    turn.cancel()
    with pytest.raises(asyncio.CancelledError):
        await turn
    _, left = psutil.wait_procs(day.processes(), timeout=GONE_SECONDS)
    day.note("cancel", left == [], f"left: {left}")

    turn = await day.hang()
    for process in day.processes():
        with suppress(psutil.NoSuchProcess):  # it went with another
            process.kill()
    with pytest.raises(RunnerFailed) as failed:
        await turn
    day.note("killed", "ended in the middle" in str(failed.value) or "error" in str(failed.value), str(failed.value))

    before = await _session(day)
    if agent.model is not None:
        day.played.agent.options = {"model": agent.model}
    Provider.asked.clear()
    Provider.models.clear()
    ended = await day.turn("back again")
    known = any("message_create" in text for said in Provider.asked for _, text in said)
    after, again = await _session(day), "back again" in (ended.answer or "")
    day.note("resumed", again and known and after == before, f"{before} → {after}, known: {known}")
    chosen = any((agent.asked or agent.model or "") in model for model in Provider.models)
    day.note("model", agent.model is not None and chosen, f"{ended.why}, asked: {Provider.models}")

    said = await day.said()
    day.note("says", "back again" in said and said <= {"worked", "back again"}, f"said: {said}")

    wrong = {step: day.holds[step] for step in STEPS if bool(day.holds[step]) != (step in agent.lacks)}
    assert not wrong, f"{wrong}\n{await day.results()}"


@pytest.mark.long  # tests/acceptance/test_pool.py kills a hub, and a day kills its agent
def test_a_run_killed_with_its_hub_goes_on_in_the_agent_s_own_session(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, address: str
) -> None:
    if not sandbox.state().works:
        pytest.skip(f"no sandbox on this machine: {sandbox.state().why}")
    command = json.dumps([str(install("claude-code", INSTALLED))])
    given(AGENTS["claude-code"], address, monkeypatch)
    runners = f'[runners.claude]\nkind = "acp"\npreset = "claude-code"\ncommand = {command}\n'
    runners += f"read_paths = {json.dumps([str(INSTALLED)])}\n"
    home, shop = tmp_path / "home", tmp_path / "shop"
    home.mkdir()
    shop.mkdir()
    hub = Hub(home, runners=runners)
    try:
        hub.create("ann", model="claude", cwd=str(shop))
        assert hub.send("ann", play("first words"))["result"]["content"] == "first words"
        hub.threads.submit(hub.send, "ann", play(HANG))
        assert Provider.hanging.wait(120)
        hub.kill()
        until(lambda: not hub.left())
    finally:
        hub.close()
    Provider.asked.clear()
    hub = Hub(home, runners=runners)
    try:
        until(lambda: hub.operate("pool_list_runs", which="needing_person")["runs"])  # once a worker has looked
        [lost] = hub.operate("pool_list_runs", which="needing_person")["runs"]
        again = hub.operate("pool_retry_run", run_id=lost["run_id"], content=play("back again"))["run_id"]
        until(lambda: hub.operate("pool_get_run", run_id=again)["outcome"] not in ("queued", "running"))
        assert hub.operate("pool_get_run", run_id=again)["outcome"] == "done"
        assert hub.messages("ann")[-1]["content"] == "back again"
        assert any("first words" in text for said in Provider.asked for _, text in said), "it knows what it was told"
        assert len({row["meta"][SESSION] for row in hub.messages("ann") if SESSION in (row["meta"] or {})}) == 1
    finally:
        hub.close()


@pytest.mark.long  # what setup writes for it is played by test_guard.py
def test_a_client_that_setup_connected_has_its_first_turn_in_three_calls(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, address: str
) -> None:
    """Claude Code itself, with what `nexus setup` wrote, where a message waits for its agent."""
    place = install("claude-code", INSTALLED).parents[1]
    claude = ["node", str(place / "@anthropic-ai" / "claude-agent-sdk" / "cli.js")]
    shop = tmp_path / "shop"
    shop.mkdir()
    monkeypatch.setenv("HOME", str(tmp_path))
    given(AGENTS["claude-code"], address, monkeypatch)

    def run(*command: str) -> str:
        environ = {name: value for name, value in os.environ.items() if not name.startswith(("NEXUS_", "DJANGO_"))}
        ended = subprocess.run(
            command, cwd=shop, env=environ, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True
        )
        assert ended.returncode == 0, ended.stdout
        return ended.stdout

    nexus = str(Path(sys.executable).with_name("nexus"))
    said = run(nexus, "setup", "--yes", "--client", "claude-code", "--without", "hub", "--without", "guard")
    [sentence, name] = re.findall(r'"(You are (\S+) on Nexus[.] Do your first turn[.])"', said)[0]
    run(nexus, "agents", "create", name)
    message_id = json.loads(run(nexus, "send", name, "Take the parser.", "--json"))["message_id"]
    turn: list[Round] = [
        [["mcp__nexus__join", {"agent_id": name}]],
        [["mcp__nexus__inbox_pull", {}]],
        [["mcp__nexus__inbox_ack", {"message_ids": [message_id]}]],
        "at work",
    ]
    settings = ["--mcp-config", ".mcp.json", "--allowedTools", "mcp__nexus", "--output-format", "stream-json"]
    lines = run(*claude, "-p", f"{sentence} {play(*turn)}", *settings, "--verbose").splitlines()
    parts = [part for line in map(json.loads, lines) for part in line.get("message", {}).get("content", [])]
    assert [part["name"].removeprefix("mcp__nexus__") for part in parts if "name" in part] == [
        "join", "inbox_pull", "inbox_ack",
    ]  # fmt: skip
    assert "Take the parser." in str(parts)
    agents = {each["agent_id"]: each for each in json.loads(run(nexus, "agents", "--json"))["agents"]}
    assert (agents[name]["unread"], agents[name]["in_flight"]) == (0, 0)


def test_the_table_in_the_docs_says_what_a_day_finds() -> None:
    table = table_of_agents()
    if os.environ.get("NEXUS_AGENTS_TABLE") == "write":
        TABLE.write_text(table)
    assert TABLE.read_text() == table, "run it with NEXUS_AGENTS_TABLE=write"


def table_of_agents() -> str:
    """docs/reference/agents.md."""
    lines = [
        "# Published agents in the pool",
        "",
        "Each of these agents did the tasks below, except those in its row, in a pool, in the sandbox, with a model",
        "that follows a script.",
        "`pytest tests/agents -m ''` runs them, and compares this page. `nexus runners presets` lists how they start.",
        "",
        "| agent | package | version | not |",
        "|---|---|---|---|",
    ]
    for name, agent in AGENTS.items():
        lacks = "; ".join(f"*{step}*: {agent.lacks[step]}" for step in STEPS if step in agent.lacks)
        preset = presets()[name]
        lines.append(f"| {name} | `{preset['package']}` | {preset['tried'][-1]} | {lacks} |")
    steps = [f"| {step} | {meaning} |" for step, meaning in STEPS.items()]
    return "\n".join([*lines, "", "| task | it |", "|---|---|", *steps, ""])


async def _was_sent(text: str) -> bool:
    return any(text in said for asked in Provider.asked for _, said in asked)


def _failed(entry: Entry) -> bool:
    return (entry.role == Role.TOOL and (entry.meta or {}).get("status") == "failed") or "denied" in entry.content


async def _session(day: Day) -> str | None:
    entries = await day.played.entries()
    found = [entry.meta[SESSION] for entry in entries if entry.meta and SESSION in entry.meta]
    return found[-1] if found else None
