"""`nexus setup` over clients' own files: what it writes, once, and that it takes back exactly that."""

from __future__ import annotations

import json
import os
import plistlib
import shutil
import socket
import stat
import subprocess
from collections.abc import Callable
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings
from django.core.management import call_command

from nexus.core.coding_clients import CLIENTS
from nexus.core.config import CoreSettings
from nexus.core.instance import Holder
from nexus.core.operations import dispatch
from nexus.core.operations.errors import Code, NexusError
from nexus.core.operations.registry import TOOLSETS
from nexus.hooks import client_entries, setup_pieces, setup_record
from nexus.hooks.harness import derived_id, setup_file
from nexus.reservations.guard import hooks as guard
from nexus.reservations.management.commands.guard import hook_arguments
from nexus.topics.toolset import TOPICS
from nexus_site import background
from nexus_site.management.commands import setup
from tests.conftest import LOCAL, Call, Furnish
from tests.git import git
from tests.outside import program

WRITTEN = Path(__file__).parents[1] / "hooks" / "clients"
DOCUMENTED = WRITTEN.with_name("documented_clients")
HERE = tuple(name for name, client in CLIENTS.items() if client.directory)
Files = dict[str, tuple[bytes, int]]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A person's home directory with clients that were used, and Nexus's own home inside."""
    place = tmp_path / "person"
    monkeypatch.setenv("HOME", str(place))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    for client in HERE:
        known = CLIENTS[client]
        assert known.directory is not None and known.user_file is not None
        client_entries.locate(known.directory, place).mkdir(parents=True, exist_ok=True)
        [file] = (*WRITTEN.glob(f"{client}.user.*"), *DOCUMENTED.glob(f"{client}.user.*"))
        target = client_entries.locate(known.user_file, place)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(file, target)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
    monkeypatch.setattr("sys.argv", ["/opt/nexus/bin/nexus"])
    kept = CoreSettings.current().replaced(home=place / ".nexus")
    monkeypatch.setattr("django.conf.settings.NEXUS", kept)
    monkeypatch.setattr(setup, "_answers", lambda root: setup.CheckRow("Nexus answers", True, "63 tools"))
    monkeypatch.setattr(setup, "_is_woken", lambda home, root: setup.CheckRow("an idle agent is woken", True, ""))
    return place


@pytest.fixture
def shop(runs_git: None, project: str) -> Path:
    """A repository with files of clients and of its own."""
    root = Path(project)
    subprocess.run([program("git"), "init", "-q", str(root)], check=True)
    shutil.copy(WRITTEN / "claude-code.project.json", root / ".mcp.json")
    (root / ".gemini").mkdir()
    shutil.copy(WRITTEN / "gemini.project.json", root / ".gemini" / "settings.json")
    (root / "AGENTS.md").write_text("# Shop\n\nUse tabs.\n")
    return root


def ran(shop: Path, *arguments: str) -> tuple[int, str, str]:
    out, err = StringIO(), StringIO()
    try:
        call_command("setup", "--project", str(shop), *arguments, stdout=out, stderr=err)
    except SystemExit as end:
        return int(end.code or 0), out.getvalue(), err.getvalue()
    return 0, out.getvalue(), err.getvalue()


def set_up(shop: Path, *arguments: str) -> str:
    code, out, err = ran(shop, "--yes", "--without", "hub", *arguments)
    assert code == 0, (out, err)
    return out


def everything(*places: Path) -> Files:
    """Every file below these directories, with its mode; but for Nexus's own home."""
    return {
        str(file): (file.read_bytes(), stat.S_IMODE(file.stat().st_mode))
        for place in places
        for file in place.rglob("*")
        if file.is_file() and ".nexus" not in file.parts
    }


def directories(*places: Path) -> set[Path]:
    return {one for place in places for one in place.rglob("*") if one.is_dir() and ".nexus" not in one.parts}


def test_it_connects_every_client_and_takes_back_exactly_what_it_wrote(home: Path, shop: Path) -> None:
    before, made = everything(home, shop), directories(home, shop)
    shown = set_up(shop, "--diff")
    written = ".mcp.json .codex/config.toml .qwen/settings.json opencode.json .claude/settings.local.json"
    for path in (*written.split(), ".opencode/plugins/nexus.js"):
        assert f"+++ {shop / path}" in shown and "nexus" in (shop / path).read_text()
    for path in (".cline/data/settings/cline_mcp_settings.json", ".codeium/windsurf/mcp_config.json"):
        assert "nexus" in (home / path).read_text()
    assert json.loads((shop / ".mcp.json").read_text())["mcpServers"].keys() == {"other", "nexus"}
    assert (shop / "AGENTS.md").read_text().startswith("# Shop\n\nUse tabs.\n\n<!-- nexus")
    assert (shop / ".git/hooks/pre-commit").exists()
    assert ran(shop, "--undo", "--yes")[0] == 0
    assert everything(home, shop) == before
    assert directories(home, shop) == made


def test_it_changes_nothing_the_second_time(home: Path, shop: Path) -> None:
    set_up(shop)
    before = everything(home, shop)
    kept = setup_file(home / ".nexus", shop).read_text()
    assert "Nothing needs a change." in set_up(shop)
    assert (everything(home, shop), setup_file(home / ".nexus", shop).read_text()) == (before, kept)


def test_its_check_writes_nothing_and_says_what_is_missing(home: Path, shop: Path) -> None:
    before = everything(home, shop)
    code, out, _ = ran(shop, "--check", "--without", "hub")
    assert (code, everything(home, shop)) == (setup.LACKING, before)
    assert "Codex: tools" in out and "missing" in out
    set_up(shop)
    code, out, _ = ran(shop, "--check", "--without", "hub")
    assert (code, "missing" in out) == (0, False)
    assert "You are codex@" in out and "/hooks" in out


def test_it_takes_back_its_own_alone_where_others_wrote_since(home: Path, shop: Path) -> None:
    set_up(shop)
    servers = json.loads((shop / ".mcp.json").read_text())
    servers["mcpServers"]["later"] = {"command": "x"}
    (shop / ".mcp.json").write_text(json.dumps(servers))
    (shop / "AGENTS.md").write_text((shop / "AGENTS.md").read_text() + "\nRun the tests.\n")
    hooks = json.loads((shop / ".gemini/settings.json").read_text())
    hooks["theme"] = "dark"
    (shop / ".gemini/settings.json").write_text(json.dumps(hooks))
    assert ran(shop, "--undo", "--yes")[0] == 0
    assert json.loads((shop / ".mcp.json").read_text())["mcpServers"].keys() == {"other", "later"}
    assert (shop / "AGENTS.md").read_text() == "# Shop\n\nUse tabs.\n\nRun the tests.\n"
    left = json.loads((shop / ".gemini/settings.json").read_text())
    assert (left.keys(), left["mcpServers"].keys()) == ({"mcpServers", "theme"}, {"other"})


def test_it_puts_back_an_entry_that_it_replaced(home: Path, shop: Path) -> None:
    mine = {"type": "http", "url": "https://hub.example/mcp"}
    (shop / ".mcp.json").write_text(json.dumps({"mcpServers": {"nexus": mine}}))
    set_up(shop)
    changed = json.loads((shop / ".mcp.json").read_text())
    assert changed["mcpServers"]["nexus"]["type"] == "stdio"
    (shop / ".mcp.json").write_text(json.dumps({**changed, "later": 1}))
    ran(shop, "--undo", "--yes")
    assert json.loads((shop / ".mcp.json").read_text()) == {"mcpServers": {"nexus": mine}, "later": 1}


def test_an_undo_after_a_second_setup_goes_back_to_before_the_first(
    home: Path, shop: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = everything(home, shop)
    set_up(shop, "--client", "codex", "--without", "guard")
    monkeypatch.setattr("sys.argv", ["/elsewhere/nexus"])
    set_up(shop)
    assert "/elsewhere/nexus" in (shop / ".codex/config.toml").read_text()
    ran(shop, "--undo", "--yes")
    assert everything(home, shop) == before


def test_it_leaves_alone_a_file_it_cannot_read_and_shows_the_lines_to_paste(home: Path, shop: Path) -> None:
    text = '{\n  // mine\n  "mcp": {}\n  "theme": "dark"\n}\n'
    (shop / "opencode.json").write_text(text)
    code, out, err = ran(shop, "--yes", "--without", "hub")
    assert (code, (shop / "opencode.json").read_text()) == (setup.LACKING, text)
    assert (
        f"{shop / 'opencode.json'} is not well-formed JSON: a comma is missing in line 4" in err
        and '"type": "local"' in err
    )
    assert "opencode: tools" in out and (shop / ".codex/config.toml").exists()


def test_it_puts_nothing_in_a_file_that_cannot_take_all(home: Path, shop: Path) -> None:
    text = '{"hooks": []}'  # no place for hooks, and for a server there would be one
    (shop / ".gemini/settings.json").write_text(text)
    code, _, err = ran(shop, "--yes", "--without", "hub")
    assert (code, (shop / ".gemini/settings.json").read_text()) == (setup.LACKING, text)
    assert '"BeforeAgent"' in err


def test_a_failed_write_leaves_every_file_as_it_was(home: Path, shop: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before, made = everything(home, shop), directories(home, shop)
    replace = os.replace

    def full(source: str, target: str, **at: int) -> None:
        if Path(target).name == "SKILL.md":
            raise OSError(28, "No space left on device")
        replace(source, target, **at)

    monkeypatch.setattr(os, "replace", full)
    code, _, err = ran(shop, "--yes", "--without", "hub")
    assert (code, "SKILL.md cannot be written" in err) == (1, True)
    assert everything(home, shop) == before
    assert directories(home, shop) == made
    assert not setup_file(home / ".nexus", shop).exists()


def test_what_a_killed_run_wrote_can_be_taken_back(home: Path, shop: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = everything(home, shop)
    set_up(shop, "--without", "guard")
    (shop / "CLAUDE.md").unlink()  # as if it had been killed before it wrote this one
    ran(shop, "--undo", "--yes")
    assert everything(home, shop) == before


def test_it_asks_once_and_writes_nothing_when_told_no(home: Path, shop: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = everything(home, shop)
    asked: list[str] = []

    def no(self: Any, question: str) -> bool:
        asked.append(question)
        return False

    monkeypatch.setattr(setup.Command, "ask", no)
    code, out, _ = ran(shop)
    assert (code, everything(home, shop)) == (0, before)
    assert len(asked) == 1 and "Nothing was written." in out
    rows = [tuple(line.split("  ")) for line in out.splitlines()]
    rows = [tuple(cell.strip() for cell in row if cell) for row in rows]
    assert {
        ("Claude Code", ".claude/settings.local.json", "mail"),
        ("Gemini CLI", ".gemini/settings.json", "tools, mail"),
        ("all", "AGENTS.md", "paragraph"),
        ("git", ".git/hooks", "commit guard"),
    } < {*rows}
    assert "the hub" in out and "+++" not in out


def test_it_leaves_a_guard_that_was_there(home: Path, shop: Path) -> None:
    store, _, flags = hook_arguments()
    guard.install(str(shop), store, "closed", flags)
    assert "git hooks" not in set_up(shop, "--without", "guard")
    set_up(shop)
    ran(shop, "--undo", "--yes")
    assert (shop / ".git/hooks/pre-commit").exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a directory to another user")
def test_it_says_as_git_does_that_a_repository_is_anothers(home: Path, shop: Path) -> None:
    for path in (shop, shop / ".git"):
        os.chown(path, 54321, 54321)
    code, out, err = ran(shop, "--yes", "--without", "hub", "--client", "claude-code")
    assert code == setup.LACKING
    for said in (out, err):
        assert f"git config --global --add safe.directory {shop}" in said


def test_it_leaves_the_guard_to_the_other_projects_of_the_repository(home: Path, shop: Path) -> None:
    (shop / "pay").mkdir()
    git(shop, "commit", "--allow-empty", "-qm", "first")
    git(shop, "worktree", "add", "-q", str(shop.parent / "tree"))
    places = [shop / "pay", shop.parent / "tree", shop]
    for place in places:
        set_up(place, "--client", "claude-code")
    for place in places:
        assert (shop / ".git/hooks/pre-commit").exists()
        assert "Nothing of setup is left in this project." in ran(place, "--undo", "--yes")[1]
    assert not (shop / ".git/hooks/pre-commit").exists()


def test_a_git_hook_that_it_cannot_keep_beside_stops_nothing_else(home: Path, shop: Path) -> None:
    (shop / ".git/hooks/pre-commit").write_text("#!/bin/sh\n# husky\n")
    code, _, err = ran(shop, "--yes", "--without", "hub")
    assert (code, "husky" in err) == (setup.LACKING, True)
    assert (shop / ".codex/config.toml").exists()
    assert ran(shop, "--undo", "--yes")[0] == 0


def test_it_says_that_no_client_is_here(home: Path, shop: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_entries, "installed_clients", list)
    code, _, err = ran(shop, "--yes")
    assert (code, "No coding client was found" in err) == (1, True)


# What belongs into commits


def link(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Install Nexus as `uv tool` and `pipx` do: a link on the PATH leads to the program."""
    (tmp_path / "tool").mkdir()
    (tmp_path / "tool" / "nexus").touch(0o755)
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "nexus").symlink_to(tmp_path / "tool" / "nexus")
    monkeypatch.setattr("sys.argv", [str(tmp_path / "bin" / "nexus")])
    usual = dict.fromkeys(client_entries.STORE_SETTINGS, "default")
    monkeypatch.setattr("django.conf.settings.NEXUS_SOURCES", {**settings.NEXUS_SOURCES, **usual})


def test_what_colleagues_may_have_starts_nexus_by_its_name(
    home: Path, shop: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    link(home, tmp_path, monkeypatch)
    said = set_up(shop)
    assert json.loads((shop / ".mcp.json").read_text())["mcpServers"]["nexus"]["command"] == "nexus"
    assert '"nexus hook --client gemini' in (shop / ".gemini/settings.json").read_text()
    assert 'const COMMAND = ["nexus", "hook",' in (shop / ".opencode/plugins/nexus.js").read_text()
    assert str(tmp_path) in (shop / ".claude/settings.local.json").read_text()
    assert str(tmp_path) in (home / ".codeium/windsurf/mcp_config.json").read_text(), "an editor may have another PATH"
    [shared] = [line for line in said.splitlines() if line.startswith("Commit these")]
    assert ".mcp.json" in shared and ".codex/hooks.json" in shared and ".local." not in shared
    left = git(shop, "status", "--porcelain", "--untracked-files=all")
    assert ".mcp.json" in left and "settings.local.json" not in left
    ran(shop, "--undo", "--yes")
    assert "settings" not in (shop / ".git/info/exclude").read_text()


def test_git_ignores_what_names_this_machine_and_nobody_else_s_lines_change(home: Path, shop: Path) -> None:
    exclude = shop / ".git/info/exclude"
    exclude.write_text("*.swp\n")
    assert "Do not commit these" in set_up(shop, "--client", "claude-code")
    left = git(shop, "status", "--porcelain", "--untracked-files=all")
    assert ".mcp.json" not in left and ".claude/skills/nexus/SKILL.md" in left
    exclude.write_text(exclude.read_text() + "*.orig\n")
    ran(shop, "--undo", "--yes")
    assert exclude.read_text().split() == ["*.swp", "*.orig"]
    set_up(shop, "--without", "exclude")
    assert "mcp.json" not in exclude.read_text()


# Whom agents are


def test_an_agent_is_called_by_its_client_and_its_project(home: Path, shop: Path, tmp_path: Path) -> None:
    said = set_up(shop)
    assert "You are claude@project on Nexus." in said and "NEXUS_AGENT_ID=claude@project-2 claude\n" in said
    called = [derived_id(client, str(shop), home / ".nexus") for client in ("claude-code", "codex")]
    assert called == ["claude@project", "codex@project"]
    other = tmp_path / "other" / shop.name
    other.mkdir(parents=True)
    assert "You are claude@project-2 on Nexus." in set_up(other, "--client", "claude-code")
    assert "You are claude@project on Nexus." in set_up(shop)


def test_a_name_of_another_project_s_agent_in_a_shared_store_is_not_given_again(
    home: Path, shop: Path, call: Call, furnish: Furnish, tmp_path: Path
) -> None:
    furnish(home / ".nexus")
    elsewhere = call("workspace_resolve", project_root=str(tmp_path))["workspace_id"]
    call("agent_register", agent_id="codex@project")
    call("session_open", agent_id="codex@project", workspace_id=elsewhere)
    assert "You are codex@project-2 on Nexus." in set_up(shop, "--client", "codex")


def test_a_project_that_an_earlier_version_set_up_keeps_its_agents_names(home: Path, shop: Path) -> None:
    set_up(shop, "--client", "codex")
    file = setup_file(home / ".nexus", shop)
    record = json.loads(file.read_text())
    del record["agents"]
    file.write_text(json.dumps(record))
    said = set_up(shop)
    assert f"You are {derived_id('codex', str(shop))} on Nexus." in said
    assert "You are claude@project on Nexus." in said
    assert ran(shop, "--undo", "--yes")[0] == 0


# What stays


def test_an_undo_says_what_stays_and_a_purge_takes_that_too(home: Path, shop: Path, hub: list[str]) -> None:
    other = shop.parent / "other"
    other.mkdir()
    before = everything(home, shop)
    for place in (shop, other):
        ran(place, "--yes", "--client", "codex")
    (home / ".nexus" / "nexus.db").touch()
    code, _, err = ran(shop, "--undo", "--purge", "--yes")
    assert (code, f"it serves {other}, too" in err, hub) == (1, True, ["start"])
    assert f"{home / '.nexus'} stays: it serves 1 other project." in ran(shop, "--undo", "--yes")[1]
    assert "`nexus setup --undo --purge` deletes it." in ran(other, "--undo", "--yes")[1]
    assert (home / ".nexus" / "nexus.db").exists()
    assert "is deleted." in ran(shop, "--undo", "--purge", "--yes")[1]
    assert everything(home, shop) == before and not (home / ".nexus").exists()
    assert "--purge goes with --undo" in ran(shop, "--purge")[2]


def test_a_purge_deletes_no_directory_with_more_than_nexus_in_it(
    home: Path, shop: Path, configure: Callable[..., None]
) -> None:
    configure(home=home)
    code, _, err = ran(shop, "--undo", "--purge", "--yes")
    assert (code, f"{home} stays, and nothing was changed" in err, (home / ".codex").is_dir()) == (1, True, True)


# What agents read


def test_agents_get_topics_where_somebody_uses_them(home: Path, shop: Path, furnish: Furnish, call: Call) -> None:
    furnish(home / ".nexus")
    set_up(shop)
    assert ",topics" not in (shop / ".mcp.json").read_text()
    assert dispatch.run(TOPICS, LOCAL, "topic_create", {"name": "plans"}).keys() >= {"topic_id"}
    set_up(shop)
    assert "coordination,files,questions,topics" in (shop / ".mcp.json").read_text()
    assert "topic_join" in (shop / setup_pieces.SKILL).read_text()


def test_the_skill_says_what_the_server_says(home: Path, shop: Path) -> None:
    set_up(shop)
    text = (shop / setup_pieces.SKILL).read_text()
    assert text.startswith("---\nname: nexus\n") and (shop / ".claude/skills/nexus/SKILL.md").read_text() == text
    assert all(TOOLSETS[name].instructions().strip() in text for name in setup.USUAL)


@pytest.mark.parametrize("text", ["", "# Mine\n", "# Mine", "# Mine\r\n\r\nmore\r\n", "\n\n"])
def test_it_takes_out_the_very_paragraph_that_it_put_in(tmp_path: Path, text: str) -> None:
    once = setup_pieces.with_paragraph(tmp_path, text)
    assert setup_pieces.with_paragraph(tmp_path, once) == once
    assert setup_pieces.without_paragraph(once) == (text if not text or text.endswith("\n") else text + "\n")


def test_it_writes_an_older_paragraph_anew_in_its_place(tmp_path: Path) -> None:
    old = f"a\n\n{setup_pieces.BEGIN}\nold\n{setup_pieces.END}\n\nb\n"
    assert setup_pieces.with_paragraph(tmp_path, old) == f"a\n\n{setup_pieces.paragraph_text()}\nb\n"


@pytest.mark.parametrize("text", [setup_pieces.BEGIN, setup_pieces.END, 2 * setup_pieces.paragraph_text()])
def test_it_leaves_half_a_marker_alone(tmp_path: Path, text: str) -> None:
    with pytest.raises(NexusError, match="It was left as it is"):
        setup_pieces.with_paragraph(tmp_path, text)


def test_claude_code_reads_agents_md_where_its_own_file_imports_it(home: Path, shop: Path) -> None:
    (shop / "CLAUDE.md").write_text("@AGENTS.md\n")
    set_up(shop, "--client", "claude-code")
    assert (shop / "CLAUDE.md").read_text() == "@AGENTS.md\n"
    assert setup_pieces.BEGIN in (shop / "AGENTS.md").read_text()


# The hub


@pytest.fixture
def hub(home: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is done with the hub; it runs from when it is started on."""
    calls: list[str] = []
    holder = Holder(1, "127.0.0.1", 8420)

    def running(place: Path) -> Holder | None:
        return holder if calls and calls[-1] in ("start", "enable") else None

    def start(command: Any, place: Path) -> Holder:
        calls.append("start")
        return holder

    def stop(place: Path) -> bool:
        runs = running(place) is not None
        calls.extend(["stop"] if runs else [])
        return runs

    monkeypatch.setattr(setup, "running", running)
    monkeypatch.setattr(background, "start", start)
    monkeypatch.setattr(background, "stop", stop)
    monkeypatch.setattr(background, "pages", lambda place, holder: f"{holder.url}/admin/")
    return calls


def test_it_starts_the_hub_and_ends_it_with_the_last_project(
    home: Path, shop: Path, hub: list[str], tmp_path: Path
) -> None:
    other = tmp_path / "other"
    other.mkdir()
    assert ran(shop, "--yes")[0] == ran(other, "--yes", "--client", "codex")[0] == 0
    assert hub == ["start"]
    ran(shop, "--undo", "--yes")
    assert hub == ["start"]
    ran(other, "--undo", "--yes")
    assert hub == ["start", "stop"]


def test_it_opens_the_pages_on_request(home: Path, shop: Path, hub: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    monkeypatch.setattr("webbrowser.open", opened.append)
    ran(shop, "--yes")
    ran(shop, "--yes", "--open")
    assert opened == ["http://127.0.0.1:8420/admin/"]


def test_a_hub_that_cannot_start_is_an_error_and_the_clients_stay(
    home: Path, shop: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def start(command: Any, place: Path) -> Holder:
        raise NexusError(Code.CONFIG_ERROR, "The hub did not start: the port is taken.")

    monkeypatch.setattr(background, "start", start)
    code, _, err = ran(shop, "--yes")
    assert (code, "the port is taken" in err, (shop / ".codex/config.toml").exists()) == (1, True, True)
    assert not setup_record.load(home / ".nexus", shop).hub


def test_what_failed_half_way_is_done_by_the_same_command(
    home: Path, shop: Path, monkeypatch: pytest.MonkeyPatch, hub: list[str]
) -> None:
    start = background.start

    def failing(command: Any, place: Path) -> Holder:
        raise NexusError(Code.CONFIG_ERROR, "The hub did not start: the disk is full.")

    monkeypatch.setattr(background, "start", failing)
    assert ran(shop, "--yes")[0] == 1
    before = everything(home, shop)
    monkeypatch.setattr(background, "start", start)
    assert ran(shop, "--yes")[0] == 0
    assert (hub, everything(home, shop)) == (["start"], before)


def test_a_taken_port_is_known_before_anything_is_written(
    home: Path, shop: Path, hub: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    before = everything(home, shop)
    with socket.create_server(("127.0.0.1", 0)) as other:
        taken = other.getsockname()[1]
        code, _, err = ran(shop, "--yes", "--port", str(taken))
        assert (code, everything(home, shop)) == (1, before)
        assert f"Cannot listen on 127.0.0.1:{taken}" in err and "Choose another --port" in err
        monkeypatch.setattr(setup, "PORT", taken)
        assert ran(shop, "--yes")[0] == 0
        arguments = setup_record.load(home / ".nexus", shop).hub["arguments"]
        assert int(arguments[1]) != taken


def test_a_hub_that_cannot_start_with_new_options_goes_on_as_it_was(
    home: Path, shop: Path, hub: list[str], configure: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    ran(shop, "--yes", "--client", "codex")
    before, start = setup_record.hub_of(home / ".nexus"), background.start

    def failing(command: Any, place: Path) -> Holder:
        if "--control" in command:
            raise NexusError(Code.CONFIG_ERROR, "The hub did not start: an extra is missing.")
        return start(command, place)

    monkeypatch.setattr(background, "start", failing)
    configure(control=True)
    code, _, err = ran(shop, "--yes", "--client", "codex")
    assert (code, "an extra is missing" in err) == (1, True)
    assert (hub, setup_record.hub_of(home / ".nexus")) == (["start", "stop", "start"], before)


def test_a_hub_that_ended_is_started_from_another_project_as_it_was(
    home: Path, shop: Path, hub: list[str], configure: Callable[..., None], tmp_path: Path
) -> None:
    other = tmp_path / "other"
    other.mkdir()
    configure(control=True)
    ran(shop, "--yes", "--client", "codex")
    configure(control=False)
    hub.append("stop")
    ran(other, "--yes", "--client", "codex")
    records = [setup_record.load(home / ".nexus", place).hub for place in (shop, other)]
    assert (hub[2:], records[0], records[1]["arguments"][-1]) == (["start"], {}, "--control")
    ran(other, "--undo", "--yes")
    assert (setup_record.hub_of(home / ".nexus"), len(hub)) == (records[1], 3)


def test_a_person_at_a_terminal_is_asked_whether_the_hub_runs_agents_of_its_own(
    home: Path, shop: Path, hub: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def yes(self: Any, question: str) -> bool:
        asked.append(question)
        return True

    monkeypatch.setattr(setup.Command, "ask", yes)
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    assert ran(shop)[0] == 0
    assert "agents of its own" in asked[0] and len(asked) == 2
    assert setup_record.load(home / ".nexus", shop).hub["arguments"][-1] == "--control"
    assert ran(shop)[0] == 0
    assert (len(asked), hub) == (2, ["start"])


def test_control_that_is_turned_on_later_starts_the_hub_anew(
    home: Path, shop: Path, hub: list[str], configure: Callable[..., None]
) -> None:
    ran(shop, "--yes")
    configure(control=True)
    assert "with agents of its own" in ran(shop, "--yes")[1]
    assert hub == ["start", "stop", "start"]
    configure(control=False)
    ran(shop, "--yes")
    assert hub == ["start", "stop", "start"]


@pytest.fixture
def systemctl(tmp_path: Path, home: Path) -> Path:
    """A service manager that writes down how it was called; `fail` beside it has it fail."""
    place = tmp_path / "bin"
    place.mkdir()
    script = place / "systemctl"
    script.write_text(
        f'#!/bin/sh\necho "$@" >> {place}/calls\n[ ! -e {place}/fail ] || {{ echo no bus >&2; exit 1; }}\n'
    )
    script.chmod(0o755)
    return place


@pytest.mark.skipif(os.uname().sysname == "Darwin", reason="launchd is there")
def test_it_has_systemd_start_the_hub_at_login(
    home: Path, shop: Path, hub: list[str], systemctl: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(background, "running", lambda place: Holder(1, "127.0.0.1", 8420))
    before = everything(home, shop)
    code, _, err = ran(shop, "--yes", "--at-login")
    assert code in (0, setup.LACKING), err
    unit = home / ".config/systemd/user/nexus.service"
    assert 'ExecStart="/opt/nexus/bin/nexus" "serve" "--port" "8420"' in unit.read_text()
    assert "--user enable --now nexus.service" in (systemctl / "calls").read_text()
    ran(shop, "--undo", "--yes")
    assert (systemctl / "calls").read_text().endswith("--user disable --now nexus.service\n")
    assert everything(home, shop) == before


@pytest.mark.skipif(os.uname().sysname == "Darwin", reason="launchd is there")
def test_a_unit_that_fails_is_taken_back(home: Path, shop: Path, systemctl: Path) -> None:
    (systemctl / "fail").touch()
    code, _, err = ran(shop, "--yes", "--at-login")
    assert (code, "no bus" in err) == (1, True)
    assert not (home / ".config/systemd").exists()
    assert (shop / ".codex/config.toml").exists() and not setup_record.load(home / ".nexus", shop).hub


def test_a_unit_is_one_that_launchd_takes(tmp_path: Path) -> None:
    told = plistlib.loads(background.unit_text("launchd", ["/opt/nexus", "serve"], tmp_path).encode())
    assert told["ProgramArguments"] == ["/opt/nexus", "serve"] and told["RunAtLoad"] is True


@pytest.mark.usefixtures("starts_processes")
@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="no systemd-analyze: it is in Debian's systemd")
def test_a_unit_is_one_that_systemd_takes(tmp_path: Path) -> None:
    unit = tmp_path / background.UNIT
    command = [program("git"), "serve", "--home", '/a b/100% of $HOME, "quoted"']
    unit.write_text(background.unit_text("systemd", command, tmp_path))
    verify = [program("systemd-analyze"), "--user", "verify", str(unit)]
    environ = {"PATH": os.environ["PATH"], "XDG_RUNTIME_DIR": str(tmp_path)}
    done = subprocess.run(verify, env=environ, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


# A repository that somebody else made


def test_it_writes_through_no_link_of_a_repository_and_waits_for_nothing(home: Path, shop: Path) -> None:
    outside = home / ".bashrc"
    outside.write_text("mine\n")
    (home / ".ssh").mkdir()
    for name in (".mcp.json", ".cursor/mcp.json", ".codex/config.toml", "AGENTS.md", "CLAUDE.md", "opencode.json"):
        (shop / name).unlink(missing_ok=True)
        (shop / name).parent.mkdir(exist_ok=True)
    (shop / "AGENTS.md").symlink_to(outside)
    (shop / ".mcp.json").symlink_to(home / ".ssh" / "authorized_keys")
    (shop / ".cursor" / "mcp.json").symlink_to("/dev/zero")
    (shop / ".agents").symlink_to(home / ".ssh")
    (shop / ".claude").symlink_to("/dev/zero")
    os.mkfifo(shop / ".codex" / "config.toml")
    os.mkfifo(shop / "CLAUDE.md")
    os.mknod(shop / "opencode.json", stat.S_IFSOCK | 0o600)
    code, out, err = ran(shop, "--yes", "--without", "hub")
    assert code == setup.LACKING, (out, err)
    assert outside.read_text() == "mine\n" and list((home / ".ssh").iterdir()) == []
    for name in ("AGENTS.md", ".mcp.json", ".cursor/mcp.json", ".agents", ".claude", ".codex/config.toml", "CLAUDE.md"):
        assert str(shop / name) in err, name
    assert stat.S_ISSOCK((shop / "opencode.json").lstat().st_mode)
    assert stat.S_ISFIFO((shop / "CLAUDE.md").lstat().st_mode)


def test_it_follows_a_link_of_the_users_to_their_own_file_and_keeps_it(home: Path, shop: Path) -> None:
    file, kept = home / ".gemini" / "settings.json", home / "dotfiles" / "gemini.json"
    kept.parent.mkdir()
    file.rename(kept)
    file.symlink_to(kept)
    before = kept.read_bytes()
    set_up(shop, "--client", "gemini", "--scope", "user")
    assert file.is_symlink() and "nexus" in json.loads(kept.read_text())["mcpServers"]
    ran(shop, "--undo", "--yes")
    assert file.is_symlink() and kept.read_bytes() == before


def test_it_follows_no_link_of_the_users_to_anothers_file(home: Path, shop: Path) -> None:
    file, other = home / ".gemini" / "settings.json", home.parent / "other.json"
    file.rename(other)
    os.chown(other, 1234, -1)
    file.symlink_to(other)
    before = other.read_bytes()
    _, _, err = ran(shop, "--yes", "--without", "hub", "--client", "gemini", "--scope", "user")
    assert f"{file} is a link" in err
    assert other.read_bytes() == before


def test_it_says_of_each_client_how_its_idle_agent_is_woken(home: Path, shop: Path) -> None:
    said = set_up(shop)
    for client in HERE:
        [line] = [line for line in said.split("\n") if line.startswith(f"{CLIENTS[client].title}: ") and "Then" in line]
        assert line.endswith(f' Do your first turn." {CLIENTS[client].woken}')
    assert "wakes" not in ran(shop, "--yes", "--without", "hub", "--without", "hooks")[1]


def test_a_guide_that_is_a_link_to_the_other_has_the_paragraph_once(home: Path, shop: Path) -> None:
    (shop / "CLAUDE.md").symlink_to("AGENTS.md")
    set_up(shop, "--client", "claude-code", "--client", "codex")
    assert (shop / "CLAUDE.md").is_symlink()
    assert (shop / "AGENTS.md").read_text().count(setup_pieces.BEGIN) == 1


@pytest.mark.parametrize("hook", ["fifo", "device"])
def test_the_guard_neither_waits_for_nor_replaces_what_is_no_file(home: Path, shop: Path, hook: str) -> None:
    file = shop / ".git" / "hooks" / "pre-commit"
    file.unlink(missing_ok=True)
    file.parent.mkdir(exist_ok=True)
    os.mknod(file, (stat.S_IFIFO if hook == "fifo" else stat.S_IFSOCK) | 0o600)
    with pytest.raises(NexusError, match="pre-commit cannot be read"):
        guard.install(str(shop), *hook_arguments())
    assert not stat.S_ISREG(file.lstat().st_mode)
