"""`nexus setup` and clients' files as people and clients write them: our entry changes, and no other byte."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command

from nexus.core.coding_clients import CLIENTS
from nexus.core.config import CoreSettings
from nexus.core.operations.errors import Code, NexusError
from nexus.reservations.guard import hooks as guard
from nexus_site.management.commands import setup
from tests.acceptance.processes import environment
from tests.git import git
from tests.outside import npm_packages, program

PLAIN = ("--without", "hub", "--without", "guard", "--without", "texts")
VARIABLES = ("XDG_CONFIG_HOME", "CODEX_HOME", "CLAUDE_CONFIG_DIR")
HOOKS_DIRECTORY = guard.hooks_directory


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A person's home directory, with Nexus's own home inside."""
    place = tmp_path / "person"
    place.mkdir()
    monkeypatch.setenv("HOME", str(place))
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("sys.argv", ["/opt/nexus/bin/nexus"])
    monkeypatch.setattr(setup, "_answers", lambda root: setup.CheckRow("Nexus answers", True, "63 tools"))
    monkeypatch.setattr(setup, "_is_woken", lambda home, root: setup.CheckRow("an idle agent is woken", True, ""))
    monkeypatch.setattr(guard, "hooks_directory", no_repository)
    use(monkeypatch, place / ".nexus")
    return place


def no_repository(root: str) -> Any:
    raise NexusError(Code.CONFIG_ERROR, "There is no repository.")


def use(monkeypatch: pytest.MonkeyPatch, home: Path) -> None:
    """Take another home of Nexus, as `--home` does."""
    monkeypatch.setattr("django.conf.settings.NEXUS", CoreSettings.current().replaced(home=home))


@pytest.fixture
def shop(home: Path) -> Path:
    """A project in the person's home."""
    root = home / "shop"
    root.mkdir()
    return root


def ran(shop: Path, *arguments: str) -> tuple[int, str]:
    """The exit code, and everything that was said."""
    said = StringIO()
    try:
        call_command("setup", "--project", str(shop), *arguments, stdout=said, stderr=said)
    except SystemExit as end:
        return int(end.code or 0), said.getvalue()
    return 0, said.getvalue()


def set_up(shop: Path, client: str, *arguments: str) -> str:
    code, said = ran(shop, "--yes", "--client", client, *PLAIN, *arguments)
    assert code == 0, said  # it ends with the check
    return said


def undo(shop: Path) -> str:
    code, said = ran(shop, "--undo", "--yes")
    assert code == 0, said
    return said


def lay(file: Path, text: str | bytes) -> bytes:
    """Write a file, and return its bytes."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    return file.read_bytes()


def is_extended(after: bytes, before: bytes) -> bool:
    """Whether a text is another one with insertions."""
    letters = iter(after)
    return b"nexus" in after and all(letter in letters for letter in before)


VSCODE = """{
\t// my servers
\t"servers": {
\t\t"docs": { "type": "stdio", "command": "npx", "args": ["-y", "docs"], }, /* the good one */
\t},
\t"inputs": [],
}
"""
ZED = """// Zed settings
//
// For information, see its documentation.
{
  "ui_font_size": 16.0,
  "theme": { "mode": "system", "light": "One Light" },
  "context_servers": {}, // none yet
}
"""
GEMINI = """{
    "theme": "caf\\u00e9", // dark
    "ratio": 1.10,
    "big": 12345678901234567890,
    "mcpServers": {"a": {"command": "x"}}
}"""
JSON5 = "{mcpServers: {'docs': {command: 'npx', retries: +1, timeout: .5, mask: 0xFF}},}"
TWICE = '{"mcpServers": {"old": {}}, "a": 1, "a": 2, "mcpServers": {"docs": {"command": "npx"}}}'
DOTTED = 'mcp_servers.docs.command = "npx"\n\n[tail]\nz = 1_000\n'
FILES = {
    "byte-order mark": ("claude-code", ".mcp.json", '\ufeff{"mcpServers": {}}'),
    "byte-order mark in TOML": ("codex", ".codex/config.toml", '\ufeffmodel = "x"\n'),
    "comments of VS Code": ("vscode", ".vscode/mcp.json", VSCODE),
    "comments of Zed": ("zed", ".zed/settings.json", ZED),
    "comments of Gemini": ("gemini", ".gemini/settings.json", GEMINI),
    "Windows' line ends": ("gemini", ".gemini/settings.json", GEMINI.replace("\n", "\r\n")),
    "JSON5": ("qwen", ".qwen/settings.json", JSON5),
    "keys twice": ("cursor", ".cursor/mcp.json", TWICE),
    "an escaped key": ("cursor", ".cursor/mcp.json", '{"mcp\\u0053ervers": {"docs": {"command": "npx"}}}'),
    "nothing but a comment": ("zed", ".zed/settings.json", "// mine\n{\n  // later\n}\n"),
    "half a letter": ("cursor", ".cursor/mcp.json", '{"mcpServers": {"docs": {"command": "\\ud800"}}}\n'),
    "no line end": ("cursor", ".cursor/mcp.json", '{\n    "a": [1,\n2]\n}'),
    "a hook of others": (
        "claude-code",
        ".claude/settings.local.json",
        '{"hooks": {"Stop": [ {"hooks": []} ]}, "n": 1.0}',
    ),
    "dotted keys": ("codex", ".codex/config.toml", DOTTED),
    "an inline table": ("codex", ".codex/config.toml", 'mcp_servers = { docs = { command = "npx" } } # c\n[t]\nx=1\n'),
    "an inline table that is empty": ("codex", ".codex/config.toml", "mcp_servers = {}"),
    "a table's header": ("codex", ".codex/config.toml", "[mcp_servers]\ndocs.command = 'npx' # c\n\n\n# end\n"),
    "TOML with Windows' line ends": ("codex", ".codex/config.toml", DOTTED.replace("\n", "\r\n")),
    "TOML without a line end": ("codex", ".codex/config.toml", '[[hooks]]\nx = """\n[mcp_servers.nexus]\n"""'),
}


@pytest.mark.parametrize("name", FILES)
def test_it_extends_what_is_there_and_gives_back_every_byte(shop: Path, name: str) -> None:
    client, path, text = FILES[name]
    before = lay(shop / path, text)
    set_up(shop, client)
    after = (shop / path).read_bytes()
    assert is_extended(after, before)
    assert "Nothing needs a change." in set_up(shop, client)
    if path.endswith(".toml"):
        assert tomllib.loads(after.decode().removeprefix("\ufeff"))["mcp_servers"]["nexus"]["args"][0] == "runmcp"
    lay(shop / path, after.replace(b"1.10", b"[ 1.20 ]").replace(b"1_000", b"2_000").replace(b"npx", b"bunx"))
    undo(shop)
    assert (shop / path).read_bytes() == before.replace(b"1.10", b"[ 1.20 ]").replace(b"1_000", b"2_000").replace(
        b"npx", b"bunx"
    )


JUDGE = """
const jsonc = require("jsonc-parser"), json5 = require("json5");
for (const [name, before, after, servers] of JSON.parse(require("fs").readFileSync(0, "utf8"))) {
  const read = (text) => {
    const errors = [], plain = text.replace(/^\\ufeff/, "");
    const value = name === "JSON5" ? json5.parse(plain) : jsonc.parse(plain, errors, { allowTrailingComma: true });
    if (errors.length) throw new Error(name + JSON.stringify(errors));
    return value;
  };
  const now = read(after), then = { [servers]: {}, ...read(before) };
  delete now[servers].nexus;
  require("assert").deepStrictEqual(now, then);
}
"""


@pytest.mark.usefixtures("runs_published")
def test_what_it_writes_is_read_by_what_reads_it(shop: Path) -> None:
    told = []
    for number, (name, (client, path, text)) in enumerate(FILES.items()):
        if "mcp" in path or "settings.json" in path:
            project = shop / str(number)
            before = lay(project / path, text).decode()
            set_up(project, client, "--without", "hooks")
            told.append([name, before, (project / path).read_bytes().decode(), CLIENTS[client].servers])
    command = [program("node"), "-e", JUDGE]
    done = subprocess.run(command, cwd=npm_packages(), input=json.dumps(told), capture_output=True, text=True)
    assert len(told) > 8 and done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("path", "text"),
    [
        (".mcp.json", "null\n"),
        (".mcp.json", '{\n  "mcpServers": null,\n  "a": 1.0\n}'),
        (".claude/settings.local.json", '{"hooks": null}'),
        (".claude/settings.local.json", '{"hooks": {"Stop": null, "a": 1}}'),
    ],
)
def test_null_is_as_nothing_and_comes_back(shop: Path, path: str, text: str) -> None:
    before = lay(shop / path, text)
    set_up(shop, "claude-code")
    lay(shop / path, (shop / path).read_bytes() + b"\n")
    undo(shop)
    assert (shop / path).read_bytes() == before + b"\n"


@pytest.mark.parametrize("text", ['{"a": 1}'.encode("utf-16"), '{"a": 1}'.encode("utf-16-le"), b'{"a": "caf\xe9"}'])
@pytest.mark.parametrize("path", [".mcp.json", "CLAUDE.md"])
def test_it_says_of_a_file_in_another_encoding_what_to_do(shop: Path, path: str, text: bytes) -> None:
    lay(shop / path, text)
    code, said = ran(shop, "--yes", "--client", "claude-code", *PLAIN[:4])
    assert code == setup.LACKING and f"{shop / path} is " in said and "save it as UTF-8" in said
    assert ran(shop, "--check", "--client", "claude-code", *PLAIN[:4])[1].count("save it as UTF-8") == 1
    assert (shop / path).read_bytes() == text


@pytest.mark.parametrize(
    "there", ["opencode.json", "opencode.jsonc", ".opencode/opencode.json", ".opencode/opencode.jsonc"]
)
def test_it_extends_the_file_of_opencode_that_is_there(shop: Path, there: str) -> None:
    before = lay(shop / there, '{\n  // mine\n  "mcp": {},\n}\n')
    set_up(shop, "opencode")
    assert is_extended((shop / there).read_bytes(), before)
    plugin = shop / ".opencode/plugins/nexus.js"
    assert {file for file in shop.rglob("*") if file.is_file()} == {shop / there, plugin}
    undo(shop)
    assert (shop / there).read_bytes() == before


@pytest.mark.parametrize("there", ["opencode.json", "opencode.jsonc"])
def test_it_extends_the_users_file_of_opencode_that_is_there(home: Path, shop: Path, there: str) -> None:
    lay(home / ".config/opencode" / there, "{}")
    set_up(shop, "opencode", "--scope", "user")
    assert {file.name for file in (home / ".config/opencode").iterdir()} == {there, "plugins"}


def test_of_two_files_of_opencode_it_takes_the_one_with_the_entry(shop: Path) -> None:
    first = lay(shop / "opencode.json", "{}")
    ours = '{"mcp": {"nexus": {"type": "local", "command": ["nexus", "runmcp"], "enabled": false}}}'
    lay(shop / "opencode.jsonc", ours)
    set_up(shop, "opencode")
    assert (shop / "opencode.json").read_bytes() == first
    assert json.loads((shop / "opencode.jsonc").read_bytes())["mcp"]["nexus"]["enabled"] is False


@pytest.mark.parametrize(
    ("client", "variable", "path"),
    [
        ("codex", "CODEX_HOME", "config.toml"),
        ("claude-code", "CLAUDE_CONFIG_DIR", ".claude.json"),
        ("opencode", "XDG_CONFIG_HOME", "opencode/opencode.jsonc"),
        ("zed", "XDG_CONFIG_HOME", "zed/settings.json"),
    ],
)
def test_it_writes_where_a_variable_sends_the_client(
    home: Path, shop: Path, monkeypatch: pytest.MonkeyPatch, client: str, variable: str, path: str
) -> None:
    monkeypatch.setenv(variable, str(home / "elsewhere"))
    (home / "elsewhere").mkdir()
    set_up(shop, client, "--scope", "user")
    assert "runmcp" in (home / "elsewhere" / path).read_text()


# The user's own fields in our entry


def test_the_users_fields_stay_in_our_entry_of_codex(shop: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = shop / ".codex/config.toml"
    set_up(shop, "codex")
    mine = (
        'env = { NEXUS_AGENT_ID = "ann" }\nstartup_timeout_sec = 30\n\n[mcp_servers.nexus.tools.inbox_pull]\nx = 1.0\n'
    )
    edited = lay(file, file.read_text() + mine)
    assert ran(shop, "--check", "--client", "codex", *PLAIN)[0] == 0
    assert "Nothing needs a change." in set_up(shop, "codex") and file.read_bytes() == edited
    monkeypatch.setattr("sys.argv", ["/new/nexus"])
    assert ran(shop, "--check", "--client", "codex", *PLAIN)[0] == setup.LACKING
    set_up(shop, "codex")
    assert file.read_bytes() == edited.replace(b"/opt/nexus/bin/nexus", b"/new/nexus")
    undo(shop)
    assert not file.exists()


def test_the_users_fields_stay_in_our_entries_of_json(shop: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    server, hooks = shop / ".mcp.json", shop / ".claude/settings.local.json"
    set_up(shop, "claude-code")
    edited = lay(server, server.read_text().replace('"type":', '"env": {"NEXUS_AGENT_ID": "ann"}, /* me */ "type":'))
    slower = lay(hooks, hooks.read_text().replace('"timeout": 10', '"timeout": 30, "async": true'))
    assert "Nothing needs a change." in set_up(shop, "claude-code")
    monkeypatch.setattr("sys.argv", ["/new/nexus"])
    set_up(shop, "claude-code")
    assert server.read_bytes() == edited.replace(b"/opt/nexus/bin/nexus", b"/new/nexus")
    assert hooks.read_bytes() == slower.replace(b"/opt/nexus/bin/nexus", b"/new/nexus")


@pytest.mark.parametrize("form", ["header", "dotted", "inline", "keys", "below"])
def test_an_entry_of_toml_keeps_its_form(shop: Path, form: str) -> None:
    text = {
        "header": '[mcp_servers.nexus]\n  command = "old" # mine\n\n[z]\nx = 1\n',
        "dotted": 'mcp_servers.nexus.command = "old" # mine\na = 1\n\n[z]\nx = 1\n',
        "inline": 'mcp_servers = { nexus = { command = "old" }, b = { command = "b" } } # mine\n',
        "below": '[mcp_servers.nexus.env]\nA = "b"\n',
        "keys": '[mcp_servers]\nnexus.command = "old" # mine\nb = { command = "b" }\n',
    }[form]
    before = lay(shop / ".codex/config.toml", text)
    set_up(shop, "codex")
    after = (shop / ".codex/config.toml").read_bytes()
    assert is_extended(after.replace(b"/opt/nexus/bin/nexus", b"old"), before)
    assert tomllib.loads(after.decode())["mcp_servers"]["nexus"]["args"][0] == "runmcp"
    undo(shop)
    assert (shop / ".codex/config.toml").read_bytes() == before


def test_an_entry_that_was_there_comes_back_as_it_was_written(shop: Path) -> None:
    text = """{
  "mcpServers": {
    "nexus": {"url": "https:\\/\\/hub.example/mcp", "note": "caf\\u00e9"}
  },
  "n": 1.0
}"""
    before = lay(shop / ".cursor/mcp.json", text)
    set_up(shop, "cursor")
    after = (shop / ".cursor/mcp.json").read_bytes()
    assert b'"note": "caf\\u00e9"' in after and b"hub.example" not in after
    lay(shop / ".cursor/mcp.json", after.replace(b"1.0", b"2.0"))
    undo(shop)
    assert (shop / ".cursor/mcp.json").read_bytes() == before.replace(b"1.0", b"2.0")


def test_another_way_to_the_server_takes_the_place_of_the_first(shop: Path) -> None:
    file = shop / ".mcp.json"
    local = {"command": "nexus", "args": ["runmcp"], "env": {"NEXUS_API_KEY": "nxs_1", "A": "b"}}
    both = json.dumps({"mcpServers": {"nexus": local}})
    lay(file, both)
    options = ["--client", "claude-code", "--project", str(shop), "--yes"]
    call_command("connect", "--url", "http://127.0.0.1:1/mcp", *options, stdout=StringIO())
    entry = json.loads(file.read_bytes())["mcpServers"]["nexus"]
    assert entry.keys() == {"type", "url", "headers", "env"} and entry["env"] == {"A": "b"}
    call_command("connect", *options, stdout=StringIO())
    entry = json.loads(file.read_bytes())["mcpServers"]["nexus"]
    assert entry.keys() == {"type", "command", "args", "env"}


def test_codex_gets_no_field_of_the_other_way(shop: Path) -> None:
    """Codex does not start with an `env_vars` beside a `url`, nor with a header beside a `command`."""
    file = shop / ".codex/config.toml"
    lay(file, '[mcp_servers.nexus]\nenv = { NEXUS_AGENT_ID = "ann" }\ncwd = "/"\nstartup_timeout_sec = 30\n')
    options = ["--client", "codex", "--project", str(shop), "--yes"]
    for way, only in (
        ([], {"command", "args", "env_vars", "env", "cwd"}),
        (["--url", "http://127.0.0.1:1/mcp"], {"url"}),
    ):
        call_command("connect", *way, *options, stdout=StringIO())
        lay(file, file.read_text() + "".join(f"{name} = {{}}\n" for name in ["http_headers"] if way))
        entry = tomllib.loads(file.read_text())["mcp_servers"]["nexus"]
        assert entry.keys() - {"bearer_token_env_var", "http_headers"} == {*only, "startup_timeout_sec"}
    call_command("connect", *options, stdout=StringIO())
    entry = tomllib.loads(file.read_text())["mcp_servers"]["nexus"]
    assert entry.keys() == {"command", "args", "env_vars", "startup_timeout_sec"}


def test_a_hook_keeps_the_agent_that_it_was_installed_for(shop: Path) -> None:
    file = shop / ".claude/settings.local.json"
    options = ["--client", "claude-code", "--project", str(shop), "--yes"]
    call_command("hook", "install", "--agent-id", "ann", "--planning", *options, stdout=StringIO(), stderr=StringIO())
    before = lay(file, file.read_bytes().replace(b"/opt/nexus/bin/nexus", b"A='b c' /old/nexus"))
    set_up(shop, "claude-code")
    assert before.count(b"/old/nexus") == before.count(b"--agent-id ann --planning")
    lines = [
        group["hooks"][0]["command"] for groups in json.loads(file.read_bytes())["hooks"].values() for group in groups
    ]
    assert len(lines) == before.count(b"/old/nexus")
    assert all(line.startswith("A='b c' /opt/nexus/bin/nexus ") for line in lines)
    assert all(line.removesuffix(" --wait").endswith(" --agent-id ann --planning") for line in lines)
    undo(shop)
    assert file.read_bytes() == before


# What others still use


def test_what_another_project_uses_stays_until_the_last_is_undone(home: Path, shop: Path) -> None:
    file, other = home / ".codex/config.toml", home / "other"
    before = lay(file, "model = 'x'\n")
    other.mkdir()
    for project in (shop, other):
        set_up(project, "codex", "--scope", "user")
    after = file.read_bytes()
    assert "~/.codex/config.toml stays: another project" in undo(shop)
    assert file.read_bytes() == after
    undo(other)
    assert file.read_bytes() == before


def test_a_project_that_was_deleted_uses_nothing(home: Path, shop: Path) -> None:
    file, gone = home / ".codex/config.toml", home / "gone"
    before = lay(file, "model = 'x'\n")
    gone.mkdir()
    for project in (gone, shop):
        set_up(project, "codex", "--scope", "user")
    gone.rename(home / "trash")
    undo(shop)
    assert file.read_bytes() == before


def test_what_another_home_wrote_stays(home: Path, shop: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    texts = PLAIN[:4]
    assert ran(shop, "--yes", "--client", "claude-code", *texts)[0] == 0
    use(monkeypatch, home / "second")
    assert ran(shop, "--yes", "--client", "claude-code", *texts)[0] == 0
    after = {file: file.read_bytes() for file in shop.rglob("*") if file.is_file()}
    assert b"second" in after[shop / ".mcp.json"]
    use(monkeypatch, home / ".nexus")
    undo(shop)
    assert {file: file.read_bytes() for file in shop.rglob("*") if file.is_file()} == after


@pytest.mark.usefixtures("runs_git")
def test_the_guard_that_another_home_wrote_stays(home: Path, shop: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guard, "hooks_directory", HOOKS_DIRECTORY)
    git(str(shop), "init", "--quiet")
    for place in (".nexus", "second"):
        use(monkeypatch, home / place)
        assert ran(shop, "--yes", "--client", "claude-code", "--without", "hub")[0] == 0
    use(monkeypatch, home / ".nexus")
    undo(shop)
    assert str(home / "second") in (shop / ".git/hooks/pre-commit").read_text()


def test_a_skill_that_git_checked_out_with_other_line_ends_is_the_same(shop: Path) -> None:
    assert ran(shop, "--yes", "--client", "codex", *PLAIN[:4])[0] == 0
    skill = shop / ".agents/skills/nexus/SKILL.md"
    lay(skill, skill.read_bytes().replace(b"\n", b"\r\n"))
    assert "Nothing needs a change." in ran(shop, "--yes", "--client", "codex", *PLAIN[:4])[1]
    undo(shop)
    assert not skill.exists()


def test_a_guide_without_a_line_end_comes_back_to_the_byte(shop: Path) -> None:
    guide = shop / "AGENTS.md"
    lay(guide, "\ufeff# Shop\n\nUse tabs.")
    assert ran(shop, "--yes", "--client", "codex", *PLAIN[:4])[0] == 0
    lay(guide, guide.read_text().replace("tabs", "blanks"))
    undo(shop)
    assert guide.read_text() == "\ufeff# Shop\n\nUse blanks."


# Files that cannot be replaced


@pytest.fixture
def elsewhere() -> Iterator[Path]:
    """A directory on another file system."""
    place = Path("/dev/shm", f"nexus-{os.getpid()}")
    if not place.parent.is_dir():
        pytest.skip("no /dev/shm: this test needs a second file system")
    place.mkdir()
    yield place
    for file in place.iterdir():
        file.unlink()
    place.rmdir()


def test_a_link_to_another_file_system_stays_a_link(home: Path, shop: Path, elsewhere: Path) -> None:
    before = lay(elsewhere / "claude.json", "{}\n")
    (home / ".claude.json").symlink_to(elsewhere / "claude.json")
    set_up(shop, "claude-code", "--scope", "user")
    assert (home / ".claude.json").is_symlink() and "nexus" in (elsewhere / "claude.json").read_text()
    undo(shop)
    assert (home / ".claude.json").is_symlink() and (elsewhere / "claude.json").read_bytes() == before


def test_a_link_that_leads_nowhere_is_named_and_left(home: Path, shop: Path) -> None:
    (home / ".claude.json").symlink_to(home / ".claude.json")
    code, said = ran(shop, "--yes", "--client", "claude-code", "--scope", "user", *PLAIN)
    assert (code, f"{home / '.claude.json'} is a link" in said) == (setup.LACKING, True)


def test_a_file_with_two_names_stays_one(home: Path, shop: Path) -> None:
    before = lay(home / "dotfiles.json", "{}\n")
    (home / ".claude.json").hardlink_to(home / "dotfiles.json")
    set_up(shop, "claude-code", "--scope", "user")
    assert "nexus" in (home / "dotfiles.json").read_text()
    undo(shop)
    assert (home / ".claude.json").samefile(home / "dotfiles.json")
    assert (home / "dotfiles.json").read_bytes() == before


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may give files away")
def test_a_file_of_another_user_stays_theirs(shop: Path) -> None:
    file = shop / ".mcp.json"
    lay(file, "{}")
    file.chmod(0o640)
    os.chown(file, 1234, 1234)
    set_up(shop, "claude-code")
    now = file.stat()
    assert (now.st_uid, now.st_gid, now.st_mode & 0o777) == (1234, 1234, 0o640) and "nexus" in file.read_text()


@pytest.mark.usefixtures("runs_sandbox")
def test_a_file_that_is_a_mount_of_its_own_is_written_in_place(tmp_path: Path) -> None:
    mount = [program("bwrap"), "--dev-bind", "/", "/", "--bind", str(tmp_path / "real"), str(tmp_path / ".claude.json")]
    before = lay(tmp_path / "real", '{"a": 1.10}')
    lay(tmp_path / ".claude.json", "")
    (tmp_path / "shop").mkdir()
    told = [sys.executable, "-P", "-m", "nexus", "setup", "--yes", "--client", "claude-code", "--scope", "user", *PLAIN]
    env = {**environment(tmp_path), "HOME": str(tmp_path)}
    for arguments in (told, [*told[:5], "--undo", "--yes"]):
        done = subprocess.run([*mount, *arguments], cwd=tmp_path / "shop", env=env, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
        assert (b"nexus" in (tmp_path / "real").read_bytes()) is (arguments is told)
    assert (tmp_path / "real").read_bytes() == before


def test_a_file_in_a_directory_that_takes_no_new_file_is_written_in_place(
    shop: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = shop / ".mcp.json"
    lay(file, "{}")
    inode, move = file.stat().st_ino, os.replace

    def refused(source: Any, target: Any, **at: Any) -> None:
        if target == file.name:
            raise PermissionError(13, "Permission denied")
        move(source, target, **at)

    monkeypatch.setattr(os, "replace", refused)
    set_up(shop, "claude-code")
    assert b"nexus" in file.read_bytes() and file.stat().st_ino == inode
