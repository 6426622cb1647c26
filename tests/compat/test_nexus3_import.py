"""`nexus import nexus3`: a home of NEXUS3, and bad ones.

The sessions in `tests/compat/nexus3` were written by NEXUS3 1.1.0 (commit 194173b).
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
from nexus.compat.nexus3.importing import Nexus3Import
from nexus.compat.nexus3.source import Nexus3Home
from nexus.control import selectors
from nexus.control.agents.transcript import tool_calls
from nexus.control.models import Entry, PoolAgent
from nexus.core.operations.errors import NexusError
from nexus.web.login import local_account
from tests.acceptance.processes import nexus
from tests.pages import LOCAL, shown

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("here")]
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


def imported(there: Path) -> Nexus3Import:
    importing = Nexus3Import(Nexus3Home(there), operator="olga", progress=lambda *_: None)
    importing.run()
    return importing


def change(path: Path, **fields: Any) -> None:
    path.write_text(json.dumps({**json.loads(path.read_text()), **fields}))


def everything() -> tuple[Any, ...]:
    return (
        list(PoolAgent.objects.order_by("pk").values()),
        list(Entry.objects.order_by("pk").values()),
    )


def test_sessions_become_ended_agents_with_their_transcripts(there: Path) -> None:
    before = {path: path.read_bytes() for path in there.rglob("*") if path.is_file()}
    importing = imported(there)
    assert importing.new == {"agents": 3, "entries": 8}
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


def test_the_pages_show_an_imported_agent(there: Path) -> None:
    imported(there)
    builder, helper = (PoolAgent.objects.get(agent_id=name) for name in ("builder", "helper"))
    browser = Client(headers=LOCAL)
    browser.force_login(local_account())
    listed = shown(browser.get("/admin/control/poolagent/?state=ended"))
    assert f"/admin/pool/{builder.pk}/" in listed and f"/admin/pool/{helper.pk}/" in listed
    page = shown(browser.get(f"/admin/pool/{builder.pk}/"))
    assert "There is README.md, and src." in page and "list_directory" in page and ">ended<" in page


def test_a_second_import_changes_nothing(there: Path) -> None:
    imported(there)
    before = everything()
    assert not +imported(there).new
    assert everything() == before


def test_an_agent_outside_of_the_pool_keeps_its_name(there: Path) -> None:
    agents.register(agent_id="builder", given={}, by_operator=True)
    importing = imported(there)
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
        (_empty, "has no sessions of NEXUS3"),
    ],
)
def test_a_bad_home_is_refused_whole(spoil: Callable[[Path], object], words: str, there: Path) -> None:
    spoil(there)
    with pytest.raises(NexusError) as caught:
        imported(there)
    assert caught.value.message.startswith("Nothing was imported: ") and words in caught.value.message
    assert everything() == ([], [])


def test_a_session_that_changes_meanwhile_leaves_nothing(there: Path) -> None:
    importing = Nexus3Import(Nexus3Home(there), operator="olga", progress=lambda *_: None)
    change(there / "sessions" / "helper.json", messages=[])
    with pytest.raises(NexusError, match="was written to meanwhile"):
        importing.run()
    assert everything() == ([], [])


def test_links_and_pipes_are_left_out(there: Path) -> None:
    (there / "sessions" / "link.json").symlink_to(there / "sessions" / "helper.json")
    os.mkfifo(there / "sessions" / "pipe.json")
    (there / "sessions" / "folder.json").mkdir()
    importing = imported(there)
    assert importing.unmoved["links, pipes and others that are no files"] == 3 and importing.new["agents"] == 3


def test_what_no_store_can_hold_is_replaced(there: Path) -> None:
    call = {"id": "c", "name": "x", "arguments": {"a\0": float("inf"), "b": "\ud800"}}
    change(
        there / "sessions" / "helper.json", messages=[{"role": "assistant", "content": "a\0b", "tool_calls": [call]}]
    )
    imported(there)
    entry = Entry.objects.get(agent__agent_id="helper")
    assert entry.content == "a\ufffdb" and tool_calls(entry.meta)[0]["arguments"] == {"a\ufffd": None, "b": "?"}


def test_what_is_nested_deeply_is_imported_and_shown(there: Path) -> None:
    call = '{"id": "c", "name": "x", "arguments": {"a": ' + "[" * 300 + "NaN" + "]" * 300 + "}}"
    message = '{"role": "assistant", "content": "deep", "tool_calls": [' + call + "]}"
    path = there / "sessions" / "helper.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "messages": "@"}).replace('"@"', f"[{message}]"))
    imported(there)
    helper = PoolAgent.objects.get(agent_id="helper")
    browser = Client(headers=LOCAL)
    browser.force_login(local_account())
    assert "deep" in shown(browser.get(f"/admin/pool/{helper.pk}/"))


@pytest.mark.usefixtures("starts_processes")
def test_the_command_shows_first_and_then_imports(there: Path, tmp_path: Path) -> None:
    home = tmp_path / "home"
    shown = nexus(home, "import", "nexus3", str(there), "--dry-run")
    assert shown.returncode == 0 and "3  sessions" in shown.stdout
    assert "1  configurations: write its models as runners" in shown.stdout
    done = nexus(home, "import", "nexus3", str(there), "--yes", "--json")
    assert json.loads(done.stdout)["imported"] == {"agents": 3, "entries": 8}
    assert not (home / "runners.toml").exists()
    refused = nexus(home, "import", "nexus3", str(there / "nowhere"), "--yes")
    assert refused.returncode == 1 and "Nothing was imported" in refused.stderr
