"""The catalog's agents come into a client's files, are kept up to date there, and go without a trace."""

from __future__ import annotations

import json
import sys
import tomllib
from collections.abc import Callable
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
import yaml
from django.core.management import call_command
from hypothesis import given
from hypothesis import strategies as st

from nexus.core import foreign_files
from nexus.core.coding_clients import HOOKED, SUBAGENTS
from nexus.hooks.management.commands import hook
from nexus.planning import install
from nexus.planning.catalog import bundled
from nexus.planning.catalog.capability_map import disallowed
from nexus.planning.install import render
from tests.acceptance.processes import nexus

AGENTS = bundled.agents()
Tree = dict[str, bytes]


@pytest.fixture(autouse=True)
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A user of whom nothing is known, who started `nexus`."""
    (tmp_path / "user").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path / "user"))
    monkeypatch.setattr(sys, "argv", ["/opt/nexus"])


class Planning:
    """`nexus planning` in a project, called in this process."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.said = self.told = ""

    def __call__(self, *arguments: str) -> int:
        """Its exit code; what it said and told stands in `said` and `told`."""
        out, err = StringIO(), StringIO()
        code = 0
        try:
            call_command("planning", *arguments, "--project", str(self.root), stdout=out, stderr=err)
        except SystemExit as left:
            code = int(left.code or 0)
        self.said, self.told = out.getvalue(), err.getvalue()
        return code

    def install(self, client: str = "claude-code", *more: str) -> int:
        return self("install", "--client", client, "--yes", *more)

    def uninstall(self, client: str = "claude-code", *more: str) -> int:
        return self("uninstall", "--client", client, "--yes", *more)

    def agent(self, name: str, client: str = "claude-code") -> Path:
        """The file of an agent."""
        where = SUBAGENTS[client]
        return self.root / where.project / f"{name}{where.suffix}"


@pytest.fixture
def planning(project: str) -> Planning:
    return Planning(Path(project))


def tree(place: Path) -> Tree:
    """Every file, link and directory below a place, but for backups."""

    def content(path: Path) -> bytes:
        if path.is_symlink():
            return str(path.readlink()).encode()
        return b"" if path.is_dir() else path.read_bytes()

    return {str(path.relative_to(place)): content(path) for path in place.rglob("*") if ".backup" not in path.name}


def head(file: Path) -> dict[str, Any]:
    """What a client reads in an agent's file beside the prompt."""
    text = file.read_text()
    if file.suffix == ".toml":
        return tomllib.loads(text)
    _, front, _ = text.split("---\n", 2)
    fields: dict[str, Any] = yaml.safe_load(front)
    return fields


# What is written


@pytest.mark.parametrize("client", SUBAGENTS)
def test_it_writes_every_agent_with_its_prompt(client: str, planning: Planning) -> None:
    assert planning.install(client) == 0
    for name, agent in AGENTS.items():
        file = planning.agent(name, client)
        prompt = head(file)["developer_instructions"] if client == "codex" else file.read_text()
        assert agent.body.rstrip() in prompt
        assert head(file)["description"] == agent.description
        assert head(file).get("name", name) == name


@pytest.mark.parametrize(
    ("client", "tester", "engineer"),
    [
        (
            "claude-code",
            {"model": "sonnet", "disallowedTools": "Edit, MultiEdit, NotebookEdit, Write, mcp__nexus__task_add"},
            {"model": "sonnet", "disallowedTools": "mcp__nexus__task_add"},
        ),
        (
            "codex",
            {"model_reasoning_effort": "medium", "sandbox_mode": "read-only"},
            {"model_reasoning_effort": "medium", "sandbox_mode": None},
        ),
        ("gemini", {"model": "flash"}, {"model": "flash"}),
        ("cursor", {"model": "inherit", "readonly": True}, {"model": "inherit", "readonly": False}),
        (
            "opencode",
            {
                "mode": "subagent",
                "permission": dict.fromkeys(("apply_patch", "edit", "nexus_task_add", "write"), "deny"),
            },
            {"mode": "subagent", "permission": {"nexus_task_add": "deny"}},
        ),
    ],
)
def test_it_withholds_in_the_client_s_own_form(
    client: str, tester: dict[str, Any], engineer: dict[str, Any], planning: Planning
) -> None:
    planning.install(client)
    for name, expected in {"tester": tester, "engineer": engineer}.items():
        found = head(planning.agent(name, client))
        assert {key: found.get(key) for key in expected} == expected


@pytest.mark.parametrize(
    ("client", "field", "expected"),
    [("claude-code", "model", "opus"), ("gemini", "model", "pro"), ("codex", "model_reasoning_effort", "high")],
)
def test_it_gives_the_roles_that_advise_the_stronger_model(
    client: str, field: str, expected: str, planning: Planning
) -> None:
    planning.install(client)
    assert head(planning.agent("architect", client))[field] == expected


def test_it_lists_for_gemini_all_but_what_is_withheld(planning: Planning) -> None:
    planning.install("gemini")
    tools = set(head(planning.agent("tester", "gemini"))["tools"])
    assert {"read_file", "run_shell_command", "mcp_nexus_inbox_pull", "mcp_nexus_handoff_claim"} <= tools
    assert not {"write_file", "replace", "mcp_nexus_task_add"} & tools


@pytest.mark.parametrize("client", [client for client in HOOKED if client in SUBAGENTS])
def test_it_brings_the_hooks_that_hook_install_brings(client: str, planning: Planning, tmp_path: Path) -> None:
    planning.install(client)
    other = tmp_path / "other"
    other.mkdir()
    given: dict[str, Any] = {"client": client, "project_root": str(other), "planning": True, "yes": True}
    call_command(hook.Command(), "install", **given, stdout=StringIO())
    path = HOOKED[client].project_file
    assert path and (planning.root / path).read_bytes() == (other / path).read_bytes()


def test_it_says_where_a_client_has_no_hooks(planning: Planning) -> None:
    planning.install("opencode")
    assert "has no hooks" in planning.told


@pytest.mark.parametrize("client", SUBAGENTS)
def test_it_writes_for_the_user_where_that_is_wanted(client: str, planning: Planning, tmp_path: Path) -> None:
    before = tree(tmp_path / "user")
    assert planning.install(client, "--scope", "user") == 0
    place = tmp_path / "user" / SUBAGENTS[client].user
    assert {file.stem for file in place.iterdir()} == set(AGENTS)
    assert tree(planning.root) == {}
    assert planning.uninstall(client, "--scope", "user") == 0
    assert {name for name in tree(tmp_path / "user") if not name.startswith(".config")} == set(before)


TEXTS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=40)


@given(st.sampled_from(tuple(SUBAGENTS)), TEXTS, st.sampled_from(sorted(AGENTS)))
def test_any_description_comes_through_whole(client: str, description: str, role: str) -> None:
    agent = AGENTS[role]._replace(description=description)
    withheld = disallowed(agent, client, ["no_shell_exec"])
    text = install.marked(render(client, agent, withheld, ["ping"]))
    if client == "codex":
        read = tomllib.loads(text)
        prompt = read["developer_instructions"]
    else:
        _, front, prompt = text.split("---\n", 2)
        read = yaml.safe_load(front)
    assert read["description"].replace("\r\n", "\n") == description.replace("\r\n", "\n")
    assert agent.body.rstrip() in prompt
    assert install.marked(text) != text and install._whose(text) is None


# Twice, and undone


@pytest.mark.parametrize("client", SUBAGENTS)
def test_it_changes_nothing_the_second_time(client: str, planning: Planning) -> None:
    planning.install(client)
    once, written = tree(planning.root), planning.agent("writer", client).stat().st_ino
    assert planning.install(client) == 0
    assert "Nothing needs a change" in planning.said
    assert (tree(planning.root), planning.agent("writer", client).stat().st_ino) == (once, written)


def a_full_project(root: Path) -> None:
    """A project whose clients are set up already, with agents of its own."""
    for client, where in SUBAGENTS.items():
        place = root / where.project
        place.mkdir(parents=True)
        (place / f"mine{where.suffix}").write_text("---\nname: mine\n---\nMine.\n")
        if path := client in HOOKED and HOOKED[client].project_file:
            stop: dict[str, Any] = {"Stop": [{"hooks": [{"type": "command", "command": "say done"}]}]}
            content = {"version": 1, "hooks": {"stop": [{"command": "say done"}]} if client == "cursor" else stop}
            (root / path).write_text(json.dumps(content, indent=2) + "\n")


def a_comment(root: Path) -> None:
    """A project whose clients' files hold a comment, and Cursor's the version that it needs."""
    for client in HOOKED:
        file = root / HOOKED[client].file("project")
        file.parent.mkdir(exist_ok=True)
        file.write_text('{\n  // mine\n  "version": 1\n}\n' if client == "cursor" else "{\n  // mine\n}\n")


@pytest.mark.parametrize("client", SUBAGENTS)
@pytest.mark.parametrize("furnish", [lambda root: None, a_full_project, a_comment], ids=["empty", "full", "comment"])
def test_it_is_undone_byte_for_byte(client: str, furnish: Callable[[Path], None], planning: Planning) -> None:
    furnish(planning.root)
    before = tree(planning.root)
    planning.install(client)
    assert tree(planning.root) != before
    assert planning.uninstall(client) == 0
    assert tree(planning.root) == before
    assert planning.uninstall(client) == 0
    assert "Nothing needs a change" in planning.said


def test_it_brings_up_to_date_what_it_wrote_and_takes_away_what_is_no_more(planning: Planning) -> None:
    planning.install()
    planning.agent("poet").write_text(install.marked("---\nname: poet\n---\nOf an earlier version.\n"))
    assert planning.install("claude-code", "--also", "tester=no_shell_exec") == 0
    assert not planning.agent("poet").exists()
    assert "Bash" in head(planning.agent("tester"))["disallowedTools"]
    assert "Bash" not in head(planning.agent("reviewer"))["disallowedTools"]


def test_a_file_that_came_back_with_other_line_ends_is_still_ours(planning: Planning) -> None:
    planning.install()
    file = planning.agent("writer")
    file.write_bytes(file.read_bytes().replace(b"\n", b"\r\n"))
    planning.install()
    assert "Nothing needs a change" in planning.said
    planning.uninstall()
    assert tree(planning.root) == {}


def test_it_keeps_a_linked_settings_file_linked(planning: Planning, tmp_path: Path) -> None:
    (tmp_path / "dotfiles").mkdir()
    settings = Path.home() / ".claude" / "settings.json"
    settings.parent.mkdir(parents=True, exist_ok=True)
    settings.symlink_to(tmp_path / "dotfiles" / "settings.json")
    (tmp_path / "dotfiles" / "settings.json").write_text("{}\n")
    planning.install("claude-code", "--scope=user")
    assert "nexus hook" in settings.read_text()
    planning.uninstall("claude-code", "--scope=user")
    assert settings.is_symlink() and settings.read_text() == "{}\n"


# What belongs to a person


def _own(file: Path) -> None:
    file.write_text("---\nname: writer\n---\nMy writer.\n")


def _empty(file: Path) -> None:
    file.write_text("")


def _no_text(file: Path) -> None:
    file.write_bytes(b"\xff\xfe\x00")


def _link(file: Path) -> None:
    elsewhere = file.parents[3] / "elsewhere.md"
    elsewhere.write_text("mine")
    file.symlink_to(elsewhere)


def _dangling(file: Path) -> None:
    file.symlink_to(file.parents[3] / "nowhere.md")


@pytest.mark.parametrize("make", [_own, _empty, _no_text, _link, _dangling])
def test_it_leaves_a_file_of_that_name_and_says_so(
    make: Callable[[Path], None], planning: Planning, tmp_path: Path
) -> None:
    file = planning.agent("writer")
    file.parent.mkdir(parents=True)
    make(file)
    before = tree(tmp_path)
    assert planning.install() == 0
    assert f"{file} is left as it is: it was not written by Nexus" in planning.told
    assert planning.uninstall() == 0
    assert tree(tmp_path) == before


def test_it_leaves_what_was_changed_by_hand_and_says_so(planning: Planning) -> None:
    planning.install()
    file = planning.agent("writer")
    file.write_text(file.read_text() + "Always in verse.\n")
    mine = file.read_bytes()
    assert planning.install("claude-code", "--also", "writer=no_shell_exec") == 0
    assert f"{file} is left as it is: it was changed by hand" in planning.told
    assert planning.uninstall() == 0
    assert f"{file} is left as it is: it was changed by hand" in planning.told
    assert tree(planning.root) == {".claude": b"", ".claude/agents": b"", ".claude/agents/writer.md": mine}


@pytest.mark.django_db  # `nexus hook install` looks whether the agent is known
def test_it_leaves_the_hooks_of_an_agent_with_a_name(planning: Planning) -> None:
    call_command(
        hook.Command(), "install", client="claude-code", agent_id="builder", project_root=str(planning.root), yes=True,
        stdout=StringIO(), stderr=StringIO(),
    )  # fmt: skip
    before = tree(planning.root)
    planning.install()
    assert planning.agent("writer").exists()
    assert "--agent-id builder" in (planning.root / ".claude" / "settings.local.json").read_text()
    planning.uninstall()
    assert "(--agent)" in planning.told
    assert tree(planning.root) == before


# Asked first


def test_it_writes_nothing_where_nobody_can_be_asked(planning: Planning, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", StringIO())
    assert planning("install", "--client", "claude-code") == 1
    assert "+name: architect" in planning.said and "Pass --yes" in planning.told
    assert tree(planning.root) == {}


@pytest.mark.parametrize(("answer", "writes"), [("y", True), ("", False), ("n", False)])
def test_it_asks_once_for_everything(
    answer: str, writes: bool, planning: Planning, monkeypatch: pytest.MonkeyPatch
) -> None:
    questions: list[str] = []

    def reply(question: str) -> str:
        questions.append(question)
        return answer

    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    monkeypatch.setattr("builtins.input", reply)
    assert planning("install", "--client", "claude-code") == 0
    assert questions == ["Make these changes to 10 files? [y/N] "]
    assert planning.agent("writer").exists() is writes


def test_it_tells_as_json_what_it_would_do_and_what_it_did(planning: Planning) -> None:
    assert planning("install", "--client", "claude-code", "--json") == 0
    would = json.loads(planning.said)
    assert (would["applied"], len(would["written"]), tree(planning.root)) == (False, 10, {})
    planning.install("claude-code", "--json")
    assert json.loads(planning.said) == {**would, "applied": True}
    planning.install("claude-code", "--json")
    again = json.loads(planning.said)
    assert (again["written"], len(again["unchanged"])) == ([], 9)
    planning.uninstall("claude-code", "--json")
    assert sorted(json.loads(planning.said)["removed"]) == sorted(would["written"])


# Refused, and nothing half done


@pytest.mark.parametrize("kind", ["link out", "link to nothing", "circle", "a file"])
@pytest.mark.parametrize("place", [".claude", ".claude/agents"])
def test_it_refuses_a_directory_that_is_not_the_project_s(
    kind: str, place: str, planning: Planning, tmp_path: Path
) -> None:
    directory = planning.root / place
    directory.parent.mkdir(exist_ok=True)
    (tmp_path / "elsewhere").mkdir()
    if kind == "a file":
        directory.write_text("mine")
    else:
        target = {"link out": "elsewhere", "link to nothing": "nowhere"}.get(kind)
        directory.symlink_to(tmp_path / target if target else directory)
    assert planning.install() == 1
    assert "[nexus] CONFIG_ERROR" in planning.told and str(directory) in planning.told
    assert list((tmp_path / "elsewhere").iterdir()) == []
    assert not (tmp_path / "nowhere").exists()


def test_it_follows_no_link_of_the_project(planning: Planning) -> None:
    (planning.root / "dotfiles").mkdir()
    (planning.root / ".claude").symlink_to(planning.root / "dotfiles")
    assert planning.install() == 1
    assert "no link of a project is followed" in planning.told
    assert list((planning.root / "dotfiles").iterdir()) == []


def test_it_changes_nothing_beside_hooks_that_it_cannot_read(planning: Planning) -> None:
    settings = planning.root / ".claude" / "settings.local.json"
    settings.parent.mkdir()
    settings.write_text('{"hooks": {} mine\n}')
    before = tree(planning.root)
    for act in (planning.install, planning.uninstall):
        assert act() == 1
        assert "well-formed JSON" in planning.told
        assert tree(planning.root) == before


def test_it_goes_on_where_a_file_could_not_be_written(planning: Planning, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = foreign_files.replace

    def full(path: str, content: bytes, **how: Any) -> None:
        if path.endswith("tester.md"):
            raise OSError(28, "No space left on device")
        whole(path, content, **how)

    with monkeypatch.context() as patch:
        patch.setattr(foreign_files, "replace", full)
        assert planning.install() == 1
    assert "tester.md cannot be written (No space left on device)" in planning.told
    assert not planning.agent("tester").exists()
    assert planning.install() == 0
    assert {file.stem for file in planning.agent("tester").parent.iterdir()} == set(AGENTS)


def test_it_does_not_overwrite_what_came_while_it_asked(planning: Planning, monkeypatch: pytest.MonkeyPatch) -> None:
    def reply(question: str) -> str:
        planning.agent("tester").parent.mkdir(parents=True)
        planning.agent("tester").write_text("mine")
        return "y"

    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    monkeypatch.setattr("builtins.input", reply)
    assert planning("install", "--client", "claude-code") == 1
    assert "was changed by somebody else meanwhile" in planning.told
    assert planning.agent("tester").read_text() == "mine"


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["--also", "writer"], "AGENT=CAPABILITY"),
        (["--also", "=no_shell_exec"], "AGENT=CAPABILITY"),
        (["--also", "nobody=no_shell_exec"], "no agent 'nobody'"),
        (["--also", "writer=no_sleep"], "no capability 'no_sleep'"),
    ],
)
def test_it_refuses_what_it_cannot_do(more: list[str], said: str, planning: Planning) -> None:
    assert planning.install("claude-code", *more) == 1
    assert said in planning.told
    assert tree(planning.root) == {}


# The command


def test_it_lists_the_agents(planning: Planning) -> None:
    out = StringIO()
    call_command("planning", stdout=out)
    assert "architect   how       persistent  high" in out.getvalue()
    out = StringIO()
    call_command("planning", "list", "--json", stdout=out)
    assert {agent["id"] for agent in json.loads(out.getvalue())["agents"]} == set(AGENTS)


@pytest.mark.usefixtures("starts_processes")
def test_it_works_from_a_shell(tmp_path: Path, project: str) -> None:
    home = tmp_path / "home"
    install = nexus(home, "planning", "install", "--client", "claude-code", "--project", project, "--yes")
    assert (install.returncode, install.stderr) == (0, "")
    assert "manage.py hook --client claude-code" in Path(project, ".claude", "settings.local.json").read_text()
    refused = nexus(home, "planning", "uninstall", "--client", "claude-code", "--project", project)
    assert (refused.returncode, "Pass --yes" in refused.stderr) == (1, True)
    assert "examples:" in nexus(home, "planning", "install", "--help").stdout
    assert not home.exists() or not list(home.iterdir())  # the store is not concerned
