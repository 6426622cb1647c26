"""`nexus import nexus3`: a home of NEXUS3, and bad ones.

The sessions in `tests/compat/nexus3` were written by NEXUS3 1.1.0 (commit 194173b); its configuration is a small one of
the same form.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from django.test import Client

from coordination.services import agents
from nexus.compat.nexus3 import source
from nexus.compat.nexus3.importing import Import
from nexus.compat.nexus3.source import Nexus3Home
from nexus.control import runners_file, selectors
from nexus.control.agents.transcript import tool_calls
from nexus.control.models import Entry, PermissionRule, PoolAgent
from nexus.control.permissions import operator_rules
from nexus.control.permissions.rules import Action, Kind, Verdict
from nexus.core.operations.errors import NexusError
from nexus.web.login import local_account
from tests.acceptance.processes import nexus
from tests.control.playing import pool
from tests.pages import LOCAL, shown

pytestmark = pytest.mark.django_db
SAMPLE = Path(__file__).with_name("nexus3")


@pytest.fixture
def there(tmp_path: Path) -> Path:
    """A home of NEXUS3 of its own."""
    return Path(shutil.copytree(SAMPLE, tmp_path / "nexus3"))


@pytest.fixture
def here(tmp_path: Path, configure: Callable[..., None]) -> Path:
    home = tmp_path / "home"
    home.mkdir()
    configure(control=True, home=home)
    return home


def imported(there: Path, here: Path) -> Import:
    importing = Import(Nexus3Home(there), home=here, operator="olga", progress=lambda *_: None)
    importing.run()
    return importing


def change(path: Path, **fields: Any) -> None:
    path.write_text(json.dumps({**json.loads(path.read_text()), **fields}))


def everything(here: Path) -> tuple[Any, ...]:
    return (
        list(PoolAgent.objects.order_by("pk").values()),
        list(Entry.objects.order_by("pk").values()),
        sorted((path.name, path.read_text()) for path in here.iterdir() if path.suffix in (".toml", ".partial")),
    )


def test_sessions_become_ended_agents_with_their_transcripts(there: Path, here: Path) -> None:
    before = {path: path.read_bytes() for path in there.rglob("*") if path.is_file()}
    importing = imported(there, here)
    assert importing.new == {"agents": 3, "entries": 8, "runners": 8, "rules": 7}
    builder, helper = (PoolAgent.objects.get(agent_id=name) for name in ("builder", "helper"))
    assert builder.ended_at is not None and helper.parent == builder and helper.depth == 1
    assert (builder.preset, helper.preset, builder.disabled_tools) == ("sandboxed", "trusted", ["run"])
    assert (builder.cwd, builder.runner) == ("/home/ann/project", "fast")
    entries = list(Entry.objects.filter(agent=builder).order_by("position"))
    assert [(each.role, each.content) for each in entries] == [
        ("system", "You are NEXUS."),
        ("user", "List the files"),
        ("assistant", "Let me look."),
        ("tool", "README.md\nsrc/"),
        ("assistant", "There is README.md, and src."),
        ("user", "Thanks"),
    ]
    (call,) = tool_calls(entries[2].meta)
    assert (call["name"], call["arguments"], call["id"]) == ("list_directory", {"path": "."}, entries[3].tool_call_id)
    assert builder.entries_made == builder.entries_known == len(entries)
    assert not PoolAgent.objects.living().exists() and selectors.current_request("builder") is None
    assert {path: path.read_bytes() for path in there.rglob("*") if path.is_file()} == before


def test_models_become_runners_that_work(there: Path, here: Path) -> None:
    importing = imported(there, here)
    known = runners_file.read(here / runners_file.FILE)
    assert known.default == "fast" and known.by_name.keys() == {
        *("rehearsal", "fast", "haiku-native", "small", "reader", "writer", "blind", "scribe", "careful")
    }
    small: Any = known.by_name["small"]
    assert (small.model, small.base_url, small.api_key_env) == ("ollama:llama3", "http://127.0.0.1:11434/v1", None)
    assert (small.context_tokens, small.reply_tokens, small.max_iterations) == (8192, 2048, 100)
    fast: Any = known.by_name["fast"]
    assert (fast.stall_seconds, fast.retries) == (91, 5)
    runner: Any
    for runner in (small, fast, known.by_name["careful"]):
        github = runner.mcp_servers["github"]
        assert runner.mcp_servers.keys() == {"github", "files"}
        assert (github.command, github.env_from, github.env) == (["npx", "server"], ["GITHUB_TOKEN"], {})
        assert runner.mcp_servers["files"].command == ["npx", "-y", "files"]
    haiku: Any = known.by_name["haiku-native"]
    assert (haiku.model, haiku.api_key_env) == ("anthropic:claude-haiku-4-5", "ANTHROPIC_API_KEY")
    unmoved = {what for what, count in importing.unmoved.items() if count}
    assert unmoved == {
        "sessions with the level yolo, which is trusted here",
        "the value of GITHUB_TOKEN of the MCP server github: the hub needs it, too",
        "the MCP server remote: it is no command that a runner could start",
        "the MCP server nexus-own: its name has other characters than letters, digits, _ and -, or begins with nexus",
        "the preset reader: create its agents with --preset sandboxed --disable-tool write_file --model reader",
        "the preset writer: create its agents with --preset sandboxed --cwd /srv/project --write-path "
        "/srv/project/docs --model writer",
        "the preset blind: create its agents with --preset sandboxed --model blind",
        "the preset scribe: create its agents with --preset sandboxed --model scribe",
        "allowed paths of the preset writer that are not absolute",
        "time limits of tools of the preset writer: a call of run names its own",
        "the preset careful: create its agents with --preset trusted --disable-tool edit_file --disable-tool "
        "write_file --model careful",
        "blocked paths of the preset careful that are not absolute",
        "extra_headers of the provider openrouter",
        "the model per:haps of local: a runner's name has letters, digits, _ and -",
    }


def test_presets_become_runners_with_rules(there: Path, here: Path, tmp_path: Path) -> None:
    importing = imported(there, here)
    careful: Any = runners_file.read(here / runners_file.FILE).by_name["careful"]
    assert (careful.model, careful.network) == ("openrouter:x-ai/grok-4.1-fast", False)
    writer: Any = runners_file.read(here / runners_file.FILE).by_name["writer"]
    assert writer.read_paths == [f"{Path.home()}/library"] and writer.stall_seconds == 91
    assert [str(rule) for rule in importing.rules] == [
        "agents of the runner blind: deny read",
        "agents of the runner blind: deny write",
        "agents of the runner scribe: deny write",
        "agents of the runner careful: deny write",
        "agents of the runner careful: ask run",
        "agents of the runner careful: deny read /etc/[x]",
        "agents of the runner careful: deny write /etc/[x]",
    ]
    pool("pool_create_agent", agent_id="ann", cwd=str(tmp_path), preset="trusted", model="careful")
    ann = PoolAgent.objects.get(agent_id="ann", ended_at=None)
    actions = {
        Action(Kind.WRITE, paths=(f"{tmp_path}/a",), cwd=str(tmp_path)): Verdict.REFUSED,
        Action(Kind.RUN, "make", cwd=str(tmp_path)): Verdict.ASKED,
        Action(Kind.READ, paths=("/etc/[x]/y",), cwd=str(tmp_path)): Verdict.REFUSED,
        Action(Kind.READ, paths=("/etc/x/y",), cwd=str(tmp_path)): Verdict.ALLOWED,
    }
    for action, verdict in actions.items():
        assert operator_rules.decide("ann", ann, action, Verdict.ALLOWED).verdict is verdict, action
    rule = PermissionRule.objects.first()
    assert rule is not None
    operator_rules.remove(rule.pk, "olga")
    imported(there, here)
    assert PermissionRule.objects.count() == len(importing.rules) - 1, "what an operator took back stays so"


def test_the_pages_show_an_imported_agent(there: Path, here: Path) -> None:
    imported(there, here)
    builder, helper = (PoolAgent.objects.get(agent_id=name) for name in ("builder", "helper"))
    browser = Client(headers=LOCAL)
    browser.force_login(local_account())
    listed = shown(browser.get("/admin/pool/?state=ended"))
    assert f"/admin/pool/{builder.pk}/" in listed and f"/admin/pool/{helper.pk}/" in listed
    page = shown(browser.get(f"/admin/pool/{builder.pk}/"))
    assert "There is README.md, and src." in page and "list_directory" in page and ">ended<" in page


def test_a_second_import_changes_nothing(there: Path, here: Path) -> None:
    imported(there, here)
    before = everything(here)
    assert not +imported(there, here).new
    assert everything(here) == before


def test_what_the_operator_has_stays(there: Path, here: Path) -> None:
    file = here / runners_file.FILE
    own = '[runners.fast]\nkind = "acp"\ncommand = ["x"]\nenv = { TOKEN = "sk-own" }\n'
    file.write_text(own)
    file.chmod(0o640)
    agents.register(agent_id="builder", given={}, by_operator=True)
    importing = Import(Nexus3Home(there), home=here, operator="olga", progress=lambda *_: None)
    assert "sk-" not in importing.diff and "[runners.small]" in importing.diff and file.read_text() == own
    importing.run()
    assert file.read_text().startswith(own) and file.stat().st_mode & 0o777 == 0o640
    assert runners_file.read(file).default == "fast"
    assert importing.unmoved["the model fast of openrouter: a runner of this name is here"] == 1
    assert importing.unmoved["the session of builder, which is an agent outside of the pool here"] == 1
    assert set(PoolAgent.objects.values_list("agent_id", flat=True)) == {".1", "helper"}


def _empty(there: Path) -> None:
    shutil.rmtree(there)
    there.mkdir()


def _huge(there: Path) -> None:
    with (there / "sessions" / "helper.json").open("wb") as file:
        file.truncate(source.LARGEST + 1)


def _holds(text: str) -> Callable[[Path], object]:
    return lambda there: (there / "sessions" / "helper.json").write_text(text)


def _says(**fields: Any) -> Callable[[Path], None]:
    return lambda there: change(there / "sessions" / "helper.json", **fields)


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (_holds('{"schema_version": 1, "agent_id": "hel'), "is damaged, or cut off"),
        (_says(schema_version=2), "is of a newer NEXUS3 (schema 2)"),
        (_huge, "has over 32 MB"),
        (_holds('{"a":' * 5_000 + "1" + "}" * 5_000), "is damaged, or cut off"),
        (_says(messages=[{"role": "user", "content": 1}]), "is damaged, or cut off"),
        (_empty, "neither config.json nor sessions"),
    ],
)
def test_a_bad_home_is_refused_whole(spoil: Callable[[Path], object], words: str, there: Path, here: Path) -> None:
    spoil(there)
    with pytest.raises(NexusError) as caught:
        imported(there, here)
    assert caught.value.message.startswith("Nothing was imported: ") and words in caught.value.message
    assert everything(here) == ([], [], [])
    assert not PermissionRule.objects.exists()


def test_a_session_that_changes_meanwhile_leaves_nothing(there: Path, here: Path) -> None:
    importing = Import(Nexus3Home(there), home=here, operator="olga", progress=lambda *_: None)
    change(there / "sessions" / "helper.json", messages=[])
    with pytest.raises(NexusError, match="was written to meanwhile"):
        importing.run()
    assert everything(here) == ([], [], [])


def test_runners_that_change_meanwhile_leave_nothing(there: Path, here: Path) -> None:
    importing = Import(Nexus3Home(there), home=here, operator="olga", progress=lambda *_: None)
    (here / runners_file.FILE).write_text("# mine\n")
    with pytest.raises(NexusError, match="was changed meanwhile"):
        importing.run()
    assert everything(here) == ([], [], [("runners.toml", "# mine\n")])


def test_links_and_pipes_are_left_out(there: Path, here: Path) -> None:
    (there / "sessions" / "link.json").symlink_to(there / "sessions" / "helper.json")
    os.mkfifo(there / "sessions" / "pipe.json")
    (there / "sessions" / "folder.json").mkdir()
    importing = imported(there, here)
    assert importing.unmoved["links, pipes and others that are no files"] == 3 and importing.new["agents"] == 3


def test_what_no_store_can_hold_is_replaced(there: Path, here: Path) -> None:
    call = {"id": "c", "name": "x", "arguments": {"a\0": float("inf"), "b": "\ud800"}}
    change(
        there / "sessions" / "helper.json", messages=[{"role": "assistant", "content": "a\0b", "tool_calls": [call]}]
    )
    imported(there, here)
    entry = Entry.objects.get(agent__agent_id="helper")
    assert entry.content == "a\ufffdb" and tool_calls(entry.meta)[0]["arguments"] == {"a\ufffd": None, "b": "?"}


def test_what_is_nested_deeply_is_imported_and_shown(there: Path, here: Path) -> None:
    call = '{"id": "c", "name": "x", "arguments": {"a": ' + "[" * 300 + "NaN" + "]" * 300 + "}}"
    message = '{"role": "assistant", "content": "deep", "tool_calls": [' + call + "]}"
    path = there / "sessions" / "helper.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "messages": "@"}).replace('"@"', f"[{message}]"))
    imported(there, here)
    helper = PoolAgent.objects.get(agent_id="helper")
    browser = Client(headers=LOCAL)
    browser.force_login(local_account())
    assert "deep" in shown(browser.get(f"/admin/pool/{helper.pk}/"))


@pytest.mark.usefixtures("starts_processes")
def test_the_command_shows_first_and_then_imports(there: Path, tmp_path: Path) -> None:
    home = tmp_path / "home"
    shown = nexus(home, "import", "nexus3", str(there), "--dry-run")
    assert shown.returncode == 0 and "+[runners.fast]" in shown.stdout and "3  sessions" in shown.stdout
    assert "--preset sandboxed --disable-tool write_file --model reader\n" in shown.stdout
    assert "+ rule for agents of the runner careful: deny write\n" in shown.stdout
    assert "sk-hidden" not in shown.stdout and not (home / "runners.toml").exists()
    done = nexus(home, "import", "nexus3", str(there), "--yes", "--json")
    assert json.loads(done.stdout)["imported"] == {"agents": 3, "entries": 8, "runners": 8, "rules": 7}
    assert (home / "runners.toml").stat().st_mode & 0o777 == 0o600
    refused = nexus(home, "import", "nexus3", str(there / "nowhere"), "--yes")
    assert refused.returncode == 1 and "Nothing was imported" in refused.stderr
