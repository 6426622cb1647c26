"""A client's configuration keeps everything else it holds, and what cannot be read is left as it is."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
import tomllib
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command
from hypothesis import given, settings
from hypothesis import strategies as st

from coordination.toolset import run
from nexus.core import command_list
from nexus.core.coding_clients import CLIENTS, Format
from nexus.core.config import CoreSettings
from nexus.core.operations.caller import Caller
from nexus.core.operations.errors import NexusError
from nexus.hooks import client_commands, client_entries, client_files
from nexus.hooks.client_files import Edit
from nexus.hooks.management.commands.connect import check_url
from tests.acceptance.processes import environment
from tests.conftest import examples
from tests.core.test_installation import as_installed
from tests.git import git
from tests.outside import program

pytestmark = pytest.mark.django_db  # installing looks whether the agent is known
ROOT = Path(__file__).parents[2]
URL = "http://127.0.0.1:8420/mcp"
COMMAND = "/opt/nexus hook --client claude-code --agent-id builder"
KEYS = st.text(min_size=1, max_size=8)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=10),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=8,
)
GROUPS = st.lists(
    st.fixed_dictionaries({"matcher": st.text(max_size=5), "hooks": st.lists(VALUES, max_size=2)})
    | st.fixed_dictionaries({"command": st.text(max_size=9)})
    | VALUES,
    min_size=1,
    max_size=3,
)
HOOKS = st.dictionaries(st.sampled_from(["Stop", "PreToolUse", "SessionStart", "stop", "x"]), GROUPS, min_size=1)
SERVERS = st.dictionaries(KEYS.filter(lambda name: name != "nexus"), VALUES, min_size=1, max_size=3)
CONTENTS = st.builds(
    lambda rest, hooks, servers: {**rest, **({"hooks": hooks} if hooks else {}), **servers},
    st.dictionaries(KEYS, VALUES, max_size=4),
    st.none() | HOOKS,
    st.just({}) | st.builds(lambda servers: {"mcpServers": servers}, SERVERS),
)


def rewritten(text: str | None, *edits: Edit, format: Format = "json") -> str:
    """The file's text after each edit was planned and applied."""
    with tempfile.TemporaryDirectory() as place:
        file = Path(place, "settings")
        if text is not None:
            file.write_bytes(text.encode())
        for edit in edits:
            client_files.write(client_files.plan(file, format, edit))
        return file.read_bytes().decode()


@settings(max_examples=examples(40))
@given(CONTENTS, st.sampled_from(["claude-code", "codex"]), st.sampled_from([None, 2, 4, "\t"]))
def test_it_takes_out_exactly_the_hooks_it_put_in(content: Any, client: str, indent: Any) -> None:
    command = client_entries.hook_command(["/opt/my tools/nexus"], client)
    put, drop = client_files.put_hooks(client, command), client_files.drop_hooks(client)
    before = json.dumps(content, indent=indent)
    installed = json.loads(rewritten(before, put))
    assert json.loads(rewritten(before, put, drop)) == content
    assert installed["hooks"].keys() >= {"SessionStart", "UserPromptSubmit", "PostToolUse", "Stop"}
    for event, groups in content.get("hooks", {}).items():
        assert installed["hooks"][event][: len(groups)] == groups


@settings(max_examples=examples(40))
@given(CONTENTS, st.sampled_from(["claude-code", "cursor", "windsurf"]))
def test_it_takes_out_exactly_the_server_it_put_in(content: Any, client: str) -> None:
    put = client_files.put_server(client, client_entries.server_entry(client, url="http://127.0.0.1:1/mcp", key="k"))
    before = json.dumps(content)
    installed = json.loads(rewritten(before, put))
    assert json.loads(rewritten(before, put, client_files.drop_server(client))) == content
    assert installed["mcpServers"].pop("nexus")
    assert installed == {"mcpServers": {}, **content}


@settings(max_examples=examples(40))
@given(CONTENTS)
def test_it_changes_nothing_the_second_time(content: Any) -> None:
    put = client_files.put_hooks("claude-code", COMMAND)
    once = rewritten(json.dumps(content), put)
    assert rewritten(once, put) == once


def test_it_replaces_the_hooks_of_an_earlier_install() -> None:
    moved = client_files.put_hooks("claude-code", "/elsewhere/nexus hook --client claude-code")
    text = rewritten(None, client_files.put_hooks("claude-code", COMMAND), moved)
    assert COMMAND not in text
    assert text == rewritten(None, moved)


def test_a_persons_time_limit_stays_but_not_on_the_hook_that_waits() -> None:
    put = client_files.put_hooks("claude-code", COMMAND)
    text = re.sub(r'"timeout": \d+', '"timeout": 5', rewritten(None, put))
    stops = [hook for group in json.loads(rewritten(text, put))["hooks"]["Stop"] for hook in group["hooks"]]
    assert {hook.get("asyncRewake", False): hook["timeout"] == 5 for hook in stops} == {False: True, True: False}


def test_it_keeps_its_neighbours_in_a_shared_group() -> None:
    mine = {"type": "command", "command": COMMAND}
    yours = {"type": "command", "command": "say done"}
    before = json.dumps({"hooks": {"Stop": [{"hooks": [mine, yours]}]}})
    after = json.loads(rewritten(before, client_files.drop_hooks("claude-code")))
    assert after == {"hooks": {"Stop": [{"hooks": [yours]}]}}


def test_it_knows_its_own_command_again() -> None:
    ours = """
        /opt/nexus hook --client claude-code
        '/my tools/nexus' hook --client claude-code --home /h
        /usr/bin/python /src/manage.py hook --client claude-code
        /usr/bin/python /src/nexus_site/__main__.py hook --client claude-code
        /usr/bin/python -P -m nexus hook --client claude-code --home /h
        C:/tools/nexus.exe hook --client claude-code
    """
    others = """
        /usr/bin/python /src/other/__main__.py hook --client claude-code
        nexus hook --client codex
        other hook --client claude-code
        nexus hook
        unbalanced ' quote
    """
    assert all(client_entries.is_ours(line.strip(), "claude-code") for line in ours.strip().splitlines())
    theirs: list[Any] = [*map(str.strip, others.strip().splitlines()), None, 7]
    assert not any(client_entries.is_ours(command, "claude-code") for command in theirs)


TOML = '# my settings\nmodel = "x"  # the good one\n\n[mcp_servers.other]\ncommand = "o"\n\n[tail]\nz = 1\n'


def test_it_keeps_the_comments_and_order_of_toml() -> None:
    entry = client_entries.server_entry("codex", url="http://127.0.0.1:1/mcp", key_variable="NEXUS_API_KEY")
    installed = rewritten(TOML, client_files.put_server("codex", entry), format="toml")
    assert tomllib.loads(installed)["mcp_servers"]["nexus"] == {
        "url": "http://127.0.0.1:1/mcp",
        "bearer_token_env_var": "NEXUS_API_KEY",
    }
    assert "# my settings" in installed and "# the good one" in installed
    back = rewritten(TOML, client_files.put_server("codex", entry), client_files.drop_server("codex"), format="toml")
    assert back == TOML


NO_JSON = [
    *("[]", '{"hooks": []}', '{"hooks": {"Stop": {}}}', "[" * 100_000),
    *(
        '{"a" 1}',
        '{"a": 1 "b": 2}',
        '{"a": abc}',
        '{"a": 1} {}',
        '{"a": 1',
        "/* x",
        '{"a": "x\n"}',
        '{"a": 1,, "b": 2}',
        "{,}",
    ),
]
NO_TOML = ["a = ", "a = 1\na = 2", "mcp_servers = 3", "mcp_servers = [1]"]


def test_it_leaves_alone_what_it_cannot_understand(tmp_path: Path) -> None:
    hooks, server = client_files.put_hooks("claude-code", COMMAND), client_files.put_server("codex", {"command": "n"})
    json_files: list[tuple[Format, Edit, bytes]] = [("json", hooks, text.encode()) for text in NO_JSON]
    toml_files: list[tuple[Format, Edit, bytes]] = [("toml", server, text.encode()) for text in NO_TOML]
    file = tmp_path / "settings"
    for format, put, content in (*json_files, ("json", hooks, b"\xff\xfe"), *toml_files):
        file.write_bytes(content)
        with pytest.raises(NexusError, match="It was left as it is") as refused:
            client_files.plan(file, format, put)
        assert (refused.value.code, str(file) in refused.value.message) == ("CONFIG_ERROR", True)
        assert file.read_bytes() == content and list(tmp_path.iterdir()) == [file]


def test_it_keeps_a_backup_the_mode_and_the_users_link(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    real = tmp_path / "dotfiles" / "settings.json"
    real.parent.mkdir()
    real.write_text('{"a": 1}')
    real.chmod(0o640)
    link = tmp_path / "settings.json"
    link.symlink_to(real)
    file = client_entries.locate("~/settings.json", tmp_path / "project")
    change = client_files.plan(file, "json", client_files.put_hooks("codex", COMMAND))
    backup = client_files.apply(change, tmp_path / "backups")
    assert backup is not None and backup.read_text() == '{"a": 1}' and backup.stat().st_mode & 0o777 == 0o600
    assert link.is_symlink() and "hooks" in real.read_text()
    assert real.stat().st_mode & 0o777 == 0o640


def test_it_refuses_when_the_file_changed_after_it_was_shown(tmp_path: Path) -> None:
    file = tmp_path / "settings.json"
    change = client_files.plan(file, "json", client_files.put_hooks("codex", COMMAND))
    file.write_text('{"mine": 1}')
    with pytest.raises(NexusError, match="changed by somebody else"):
        client_files.write(change)
    assert file.read_text() == '{"mine": 1}'


@pytest.mark.parametrize("edit", [client_files.drop_hooks("codex"), client_files.drop_server("cursor")])
def test_it_makes_no_file_to_take_something_out_of(tmp_path: Path, edit: Edit) -> None:
    assert client_files.plan(tmp_path / "settings.json", "json", edit).diff == ""


def test_it_makes_a_new_file_for_its_owner_alone(tmp_path: Path) -> None:
    file = tmp_path / "new" / "mcp.json"
    entry = client_entries.server_entry("cursor", url="http://127.0.0.1:1/mcp", key="nxs_secret")
    client_files.write(client_files.plan(file, "json", client_files.put_server("cursor", entry)))
    assert file.stat().st_mode & 0o777 == 0o600


# The commands


@pytest.fixture(autouse=True)
def installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """`nexus` was started by its own name."""
    monkeypatch.setattr("sys.argv", ["/opt/nexus/bin/nexus"])


def test_python_m_nexus_is_written_as_the_script_or_as_it_was_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    python = tmp_path / "python"
    monkeypatch.setattr("sys.argv", ["/lib/nexus/__main__.py"])
    monkeypatch.setattr("sys.executable", str(python))
    assert client_commands.program() == [str(python), "-P", "-m", "nexus"]
    assert client_entries.is_ours(client_entries.hook_command(client_commands.program(), "codex"), "codex")
    (tmp_path / "nexus").touch()
    assert client_commands.program() == [str(tmp_path / "nexus")]


@pytest.mark.parametrize(
    ("head", "is_pythons"),
    [
        ("#!/opt/nexus/bin/python\nimport sys\n", True),
        ("#!/bin/sh\n'''exec' '/a path/python3' \"$0\" \"$@\"\n", True),  # as pip writes it for a long path
        ("#!/bin/sh\nexec python /opt/nexus\n", False),
        ("\x7fELF\n\n", False),
    ],
)
def test_a_script_is_written_so_that_no_variable_of_python_changes_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, head: str, is_pythons: bool
) -> None:
    script = tmp_path / "nexus"
    script.write_text(head)
    monkeypatch.setattr("sys.argv", [str(script)])
    module = [sys.executable, "-E", "-P", "-m", "nexus"]
    assert client_commands.program() == (module if is_pythons else [str(script)])
    assert client_entries.is_ours(client_entries.hook_command(client_commands.program(), "codex"), "codex")


def test_what_uvx_started_is_written_so_that_uvx_starts_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    uvx = tmp_path / "uvx"
    uvx.touch(mode=0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("sys.argv", ["/home/ana/.cache/uv/archive-v0/Jx2/bin/nexus-hub"])
    as_installed(monkeypatch)
    assert client_commands.program() == [str(uvx), "--from", "nexus-hub", "nexus"]
    as_installed(monkeypatch, "postgres", url="file:///my%20wheels/nexus_hub-1-py3-none-any.whl", archive_info={})
    assert client_commands.program()[2] == "nexus-hub[postgres] @ file:///my%20wheels/nexus_hub-1-py3-none-any.whl"


def test_what_is_written_has_the_name_by_which_hooks_are_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["/home/ana/.local/bin/nexus-hub"])  # as pipx installs it
    assert client_commands.program() == ["/home/ana/.local/bin/nexus"]
    assert client_entries.is_ours(client_entries.hook_command(client_commands.program(), "codex"), "codex")


@pytest.mark.usefixtures("starts_processes")
@pytest.mark.parametrize("started", [["nexus_site/__main__.py"], ["manage.py"], ["-P", "-m", "nexus"]], ids=" ".join)
def test_it_starts_however_a_configuration_names_it(started: list[str], tmp_path: Path) -> None:
    command = [sys.executable, *started, "--version"]
    done = subprocess.run(command, cwd=ROOT, env=environment(tmp_path), capture_output=True, text=True)
    assert (done.returncode, done.stdout.strip()) == (0, command_list.version())


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A person's home directory."""
    place = tmp_path / "person"
    place.mkdir()
    monkeypatch.setenv("HOME", str(place))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    return place


def failing(*arguments: str) -> str:
    err = StringIO()
    with pytest.raises(SystemExit) as end:
        call_command(*arguments, stdout=StringIO(), stderr=err)
    assert end.value.code == 1
    return err.getvalue()


def nexus(*arguments: str) -> str:
    out = StringIO()
    call_command(*arguments, stdout=out)
    return out.getvalue()


@pytest.mark.parametrize("scope", ["project", "user"])
@pytest.mark.parametrize(
    ("client", "place"),
    [
        ("claude-code", ".claude/settings.json"),
        ("codex", ".codex/hooks.json"),
        ("cursor", ".cursor/hooks.json"),
        ("gemini", ".gemini/settings.json"),
    ],
)
def test_it_installs_and_uninstalls_hooks(home: Path, project: str, client: str, scope: str, place: str) -> None:
    if (client, scope) == ("claude-code", "project"):
        place = ".claude/settings.local.json"
    options = ["--client", client, "--scope", scope, "--project", project, "--yes"]
    file = Path(project if scope == "project" else home, place)
    shown = nexus("hook", "install", "--agent-id", "builder", *options)
    assert f"+++ {file}" in shown and f"Wrote {file}." in shown
    installed = json.loads(file.read_text())
    assert f"hook --client {client} --agent-id builder" in json.dumps(installed)
    assert "needs no change" in nexus("hook", "install", "--agent-id", "builder", *options)
    assert "The backup is" in nexus("hook", "uninstall", *options)
    assert "hooks" not in json.loads(file.read_text())


def test_it_says_that_the_agent_of_a_hook_is_unknown(home: Path, project: str) -> None:
    run(Caller(transport="test"), "agent_register", {"agent_id": "builder"})

    def told(name: str) -> str:
        err = StringIO()
        options = ["--client", "codex", "--project", project, "--yes"]
        call_command("hook", "install", "--agent-id", name, *options, stdout=StringIO(), stderr=err)
        return err.getvalue()

    assert "There is no agent 'bilder' yet" in told("bilder") and "Did you mean 'builder'?" in told("bilder")
    assert told("builder") == ""


def test_it_leads_to_setup_for_a_client_with_a_plugin(project: str) -> None:
    assert "for opencode use `nexus setup`" in failing("hook", "install", "--client", "opencode", "--project", project)


def test_it_writes_nothing_when_nobody_can_be_asked(home: Path, project: str) -> None:
    assert "Pass --yes" in failing("hook", "install", "--client", "codex", "--project", project)
    assert list(Path(project).iterdir()) == []


@pytest.mark.parametrize(
    ("client", "place", "entry"),
    [
        ("claude-code", ".mcp.json", {"type": "http", "url": URL, "headers": {"Authorization": "Bearer ${KEY}"}}),
        ("cursor", ".cursor/mcp.json", {"url": URL, "headers": {"Authorization": "Bearer ${env:KEY}"}}),
        ("vscode", ".vscode/mcp.json", {"type": "http", "url": URL, "headers": {"Authorization": "Bearer ${env:KEY}"}}),
        ("codex", ".codex/config.toml", {"url": URL, "bearer_token_env_var": "KEY"}),
        ("gemini", ".gemini/settings.json", {"httpUrl": URL, "headers": {"Authorization": "Bearer ${KEY}"}}),
    ],
)
def test_it_connects_a_project_over_http(project: str, client: str, place: str, entry: dict[str, Any]) -> None:
    options = ["--client", client, "--project", project, "--yes"]
    nexus("connect", "--url", URL, "--key-env", "KEY", *options)
    file = Path(project, place)
    known = CLIENTS[client]
    read = json.loads if known.format == "json" else tomllib.loads
    assert read(file.read_text())[known.servers]["nexus"] == entry
    nexus("connect", "--remove", *options)
    assert read(file.read_text()) == {}


@pytest.mark.parametrize(
    ("client", "place"),
    [
        ("claude-desktop", ".config/Claude/claude_desktop_config.json"),
        ("windsurf", ".codeium/windsurf/mcp_config.json"),
    ],
)
def test_it_connects_a_client_with_one_file_for_its_person(
    home: Path, monkeypatch: pytest.MonkeyPatch, project: str, client: str, place: str
) -> None:
    monkeypatch.setattr("sys.platform", "linux")
    nexus("connect", "--client", client, "--project", project, "--key", "nxs_" + "a" * 48, "--yes")
    entry = json.loads((home / place).read_text())["mcpServers"]["nexus"]
    assert entry["args"] == ["runmcp", "--home", str(CoreSettings.current().home)]
    assert entry["env"] == {"NEXUS_API_KEY": "nxs_" + "a" * 48}


@pytest.mark.parametrize(
    ("given", "written"),
    [
        ("http://h/mcp", "http://h/mcp?toolsets=coordination"),
        ("http://h/mcp?a=1&toolsets=all", "http://h/mcp?a=1&toolsets=coordination"),
        ("", ["--toolsets", "coordination"]),
    ],
)
def test_it_writes_the_toolsets_that_it_was_told_of(project: str, settings: Any, given: str, written: Any) -> None:
    settings.NEXUS_SOURCES = {**settings.NEXUS_SOURCES, "toolsets": "flag"}
    settings.NEXUS = settings.NEXUS.replaced(toolsets="coordination")
    url = ["--url", given] if given else []
    nexus("connect", "--client", "claude-code", "--project", project, "--yes", *url)
    entry = json.loads(Path(project, ".mcp.json").read_text())["mcpServers"]["nexus"]
    assert entry["url"] == written if given else entry["args"][-2:] == written


@pytest.mark.parametrize("secret", ["sesame@", "", "@"])
@pytest.mark.parametrize("command", [("hook", "install", "--client", "codex"), ("connect", "--client", "codex")])
def test_it_never_writes_a_databases_password(
    home: Path, project: str, settings: Any, command: tuple[str, ...], secret: str
) -> None:
    settings.NEXUS_SOURCES = {**settings.NEXUS_SOURCES, "database_url": "environment"}
    url = f"postgresql://ana{':' + secret if secret else '@'}db.example:5433/team?sslmode=require"
    settings.NEXUS = settings.NEXUS.replaced(database_url=f"{url}&sslpassword=sesame" if secret else url)
    err = StringIO()
    call_command(*command, "--project", project, "--yes", stdout=StringIO(), stderr=err)
    (written,) = [file.read_text() for file in Path(project, ".codex").iterdir()]
    assert "postgresql://ana@db.example:5433/team?sslmode=require" in written
    assert "sesame" not in written and "sslpassword" not in written
    assert ("~/.pgpass" in err.getvalue()) is bool(secret)


def test_it_never_shows_a_key_on_the_screen(project: str) -> None:
    key = "nxs_" + "b" * 48
    shown = nexus("connect", "--client", "cursor", "--url", URL, "--key", key, "--project", project, "--yes")
    assert key not in shown
    assert key in Path(project, ".cursor/mcp.json").read_text()


KEY = "nxs_" + "c" * 48


@pytest.fixture
def cloned(runs_git: None, project: str) -> str:
    """A project under git."""
    program("git")
    git(project, "init", "--quiet")
    return project


def connect(client: str, project: str, *arguments: str) -> list[str]:
    return ["connect", "--client", client, "--project", project, "--yes", *arguments]


def test_it_names_a_variable_where_no_key_is_given(cloned: str) -> None:
    assert "Start the client with NEXUS_API_KEY set" in nexus(*connect("codex", cloned, "--url", URL))
    assert 'bearer_token_env_var = "NEXUS_API_KEY"' in Path(cloned, ".codex/config.toml").read_text()


def test_it_connects_a_client_to_what_takes_another_systems_place(cloned: str) -> None:
    nexus(*connect("cursor", cloned, "--as", "nexus-core"))
    (entry,) = json.loads(Path(cloned, ".cursor", "mcp.json").read_text())["mcpServers"].values()
    assert "runmcp" in entry["args"]
    assert entry["args"][-2:] == ["--as", "nexus-core"]
    assert "leave --url out" in failing(*connect("cursor", cloned, "--as", "nexus-core", "--url", URL))


@pytest.mark.parametrize("url", [["--url", URL], []])
def test_it_keeps_a_key_out_of_a_repository_unless_told_twice(cloned: str, url: list[str]) -> None:
    file = Path(cloned, ".mcp.json")
    said = failing(*connect("claude-code", cloned, *url, "--key", KEY))
    assert "CONFIG_ERROR" in said and "part of a git repository" in said and KEY not in said
    assert not file.exists()
    nexus(*connect("claude-code", cloned, *url, "--key", KEY, "--key-in-repository"))
    assert KEY in file.read_text() and file.stat().st_mode & 0o777 == 0o600


def test_it_knows_what_git_tracks_and_would_track(cloned: str, tmp_path: Path) -> None:
    Path(cloned, ".gitignore").write_text("*.json\n")
    ignored, tracked = Path(cloned, ".cursor", "mcp.json"), Path(cloned, ".mcp.json")
    tracked.write_text("{}")
    git(cloned, "add", "--force", ".mcp.json")
    assert [client_commands.would_track(file) for file in (ignored, tracked)] == [False, True]
    assert not client_commands.would_track(tmp_path / "elsewhere.json")
    nexus(*connect("cursor", cloned, "--url", URL, "--key", KEY))
    assert KEY in ignored.read_text()


def test_it_heeds_what_the_operator_has_git_ignore(
    cloned: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "config" / "git").mkdir(parents=True)
    (tmp_path / "config" / "git" / "ignore").write_text("**/mcp.json\n")
    (tmp_path / "config" / "git" / "other").write_text(".mcp.json\n")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    ours = [Path(cloned, name) for name in (".cursor/mcp.json", ".mcp.json")]
    assert [client_commands.would_track(file) for file in ours] == [False, True]
    for name, value in {"COUNT": "1", "KEY_0": "core.excludesFile", "VALUE_0": f"{tmp_path}/config/git/other"}.items():
        monkeypatch.setenv(f"GIT_CONFIG_{name}", value)
    assert [client_commands.would_track(file) for file in ours] == [True, False]
    monkeypatch.setenv("GIT_DIR", str(tmp_path))  # of another program
    assert not client_commands.would_track(ours[1])


def test_it_takes_a_repository_for_one_where_git_cannot_be_asked(cloned: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    assert client_commands.would_track(Path(cloned, ".mcp.json"))


def test_it_leaves_no_backup_in_a_repository_and_none_that_others_read(cloned: str) -> None:
    nexus(*connect("claude-code", cloned, "--key", KEY, "--key-in-repository"))
    Path(cloned, ".mcp.json").chmod(0o644)
    said = nexus(*connect("claude-code", cloned, "--url", URL))
    backup = Path(said.split("The backup is ")[1].splitlines()[0].rstrip("."))
    assert KEY in backup.read_text() and backup.stat().st_mode & 0o777 == 0o600
    assert git(cloned, "ls-files", "--others").split() == [".mcp.json"]
    assert KEY not in Path(cloned, ".mcp.json").read_text()


@pytest.mark.parametrize(
    "url", "foo 127.0.0.1:8420/mcp ftp://h/mcp http:// http:///mcp http://h:0 http://h:x http://[".split()
)
def test_it_refuses_what_is_no_address_of_a_hub(project: str, url: str) -> None:
    said = failing(*connect("cursor", project, "--url", url))
    assert "VALIDATION_ERROR" in said and "http://127.0.0.1:8420/mcp" in said
    assert list(Path(project).iterdir()) == []


@given(st.text(max_size=30))
def test_it_takes_any_text_for_an_address_or_refuses_it(url: str) -> None:
    try:
        check_url(url)
    except NexusError as error:
        assert error.code == "VALIDATION_ERROR"
    else:
        assert url.lower().startswith(("http://", "https://"))


def test_it_prints_what_belongs_in_no_file_it_knows() -> None:
    printed = json.loads(nexus("connect", "--client", "json", "--url", URL))
    assert printed == {"mcpServers": {"nexus": {"type": "http", "url": URL}}}


def test_it_refuses_a_remote_server_where_a_client_starts_local_ones() -> None:
    assert "starts local servers only" in failing("connect", "--client", "claude-desktop", "--url", URL, "--yes")


@pytest.mark.parametrize("client", CLIENTS)
def test_it_has_a_snippet_for_every_client(client: str) -> None:
    snippet = client_entries.snippet(client, key="nxs_key")
    read = json.loads if snippet.format == "json" else tomllib.loads
    known = CLIENTS[client]
    entry = read(snippet.text)[known.servers]["nexus"]
    started = entry["command"] if known.joined else [entry["command"], *entry["args"]]
    assert (started, entry[known.environment]) == (["nexus", "runmcp"], {"NEXUS_API_KEY": "nxs_key"})


def test_a_client_that_cleans_the_environment_is_told_what_to_pass_on() -> None:
    entry = client_entries.server_entry("codex")
    assert {"NEXUS_API_KEY", "NEXUS_AGENT_ID", "NEXUS_HOME", "PGPASSWORD"} <= set(entry["env_vars"])
    assert "env_vars" not in client_entries.server_entry("codex", url="http://127.0.0.1:1/mcp")
    assert "env_vars" not in client_entries.server_entry("gemini")


def test_variables_that_a_person_lets_codex_pass_on_stay() -> None:
    put = client_files.put_server("codex", client_entries.server_entry("codex"))
    text = rewritten('[mcp_servers.nexus]\ncommand = "nexus"\nenv_vars = ["MINE", "NEXUS_HOME"]\n', put, format="toml")
    passed = tomllib.loads(text)["mcp_servers"]["nexus"]["env_vars"]
    assert passed[:2] == ["MINE", "NEXUS_HOME"] and "NEXUS_API_KEY" in passed and passed.count("NEXUS_HOME") == 1
    assert rewritten(text, put, format="toml") == text


# Files that the clients wrote themselves, with their own `mcp add`; and, for those that have none, such as their
# documentation shows

HERE = Path(__file__).parent
WRITTEN = sorted([*(HERE / "clients").iterdir(), *(HERE / "documented_clients").iterdir()])


@pytest.mark.parametrize("file", WRITTEN, ids=lambda file: file.name)
def test_it_writes_beside_what_a_client_wrote_and_takes_that_out_again(file: Path) -> None:
    client = file.name.partition(".")[0]
    known, text = CLIENTS[client], file.read_text()
    read = json.loads if known.format == "json" else tomllib.loads
    put = client_files.put_server(client, client_entries.server_entry(client))
    there = read(rewritten(text, put, format=known.format))
    assert there[known.servers].pop("nexus") and there == read(text)
    assert read(rewritten(text, put, client_files.drop_server(client), format=known.format)) == read(text)


@pytest.mark.parametrize("file", [file for file in WRITTEN if "cline" not in file.name], ids=lambda file: file.name)
def test_it_writes_entries_in_the_form_that_a_client_writes(file: Path) -> None:
    client = file.name.partition(".")[0]
    read = json.loads if CLIENTS[client].format == "json" else tomllib.loads
    theirs = read(file.read_text())[CLIENTS[client].servers]
    if "other" in theirs:
        ours = client_entries.server_entry(client, command=["/bin/other", "serve"])
        extra = ("args", CLIENTS[client].passed)  # the second is documented, and no command of the client writes it
        assert all(theirs["other"][field] == value for field, value in ours.items() if field not in extra)
    if "far" in theirs and client != "gemini":  # which has two forms, and takes both
        variable = "FAR" if client == "codex" else None
        far = client_entries.server_entry(client, url="https://example.com/mcp", key="x", key_variable=variable)
        assert {**far, "tools": ["*"]} == {"tools": ["*"], **theirs["far"]}  # Copilot names them, all is its default


def test_it_finds_the_clients_on_the_path_and_those_that_were_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    assert client_entries.installed_clients() == []
    for directory in (".codex", "bin"):
        (tmp_path / directory).mkdir()
    (tmp_path / "bin" / "claude").touch(mode=0o755)  # which has no directory yet
    assert client_entries.installed_clients() == ["claude-code", "codex"]
