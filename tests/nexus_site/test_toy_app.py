"""An app is added by its folder and one line: all it brings is there, and no other app's file has changed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from mcp.client.client import Client

from tests.acceptance import hub as hubs
from tests.acceptance.hub import ROOT, Hub
from tests.acceptance.processes import environment, nexus, pipes
from tests.conftest import Furnish
from tests.toy_app import plant, run

pytestmark = pytest.mark.sqlite  # its processes have a home of their own, and the store in it


@pytest.fixture(scope="module")
def command(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return plant(tmp_path_factory.mktemp("installation"))


@pytest.fixture(scope="module")
def hub(starts_hubs: None, command: Path, tmp_path_factory: pytest.TempPathFactory, furnish: Furnish) -> Iterator[Hub]:
    with hubs.serving(furnish(tmp_path_factory.mktemp("hub") / "home"), program=command) as served:
        yield served


@pytest.fixture(autouse=True)
def shelf(starts_processes: None, hub: Hub, command: Path) -> None:
    """An empty shelf, and the defaults of the settings."""
    hub.call("settings_update", values={"toy_limit": None})
    hub.call("retention_prune", toys_keep_days=0)


def add(hub: Hub, name: str, **arguments: Any) -> httpx.Response:
    return httpx.post(f"{hub.url}/api/v1/toy/operations/toy_add", json={"name": name, **arguments})


def test_its_operations_are_served_over_rest_in_its_own_form(hub: Hub) -> None:
    added = add(hub, "bear")
    assert (added.status_code, added.json()) == (200, {"added": "bear", "by": "operator:local"})
    unknown = httpx.post(f"{hub.url}/api/v1/toy/operations/toy_burn", json={})
    assert (unknown.status_code, unknown.json()) == (404, {"failed": "NOT_FOUND"})
    malformed = httpx.post(f"{hub.url}/api/v1/toy/operations/toy_add", content=b"[]")
    assert (malformed.status_code, malformed.json()) == (400, {"failed": "VALIDATION_ERROR"})


def test_its_route_is_served_in_its_own_form(hub: Hub) -> None:
    made = httpx.post(f"{hub.url}/api/v1/toys", json={"name": "kite"})
    assert (made.status_code, made.json()["added"]) == (201, "kite")
    assert httpx.get(f"{hub.url}/api/v1/toys").json() == {"toys": ["kite"]}


def test_its_paths_stand_in_the_schema(hub: Hub) -> None:
    paths = httpx.get(f"{hub.url}/api/v1/schema").json()["paths"]
    assert {"/api/v1/toy/operations/toy_add", "/api/v1/toys"} <= paths.keys()
    calls = paths["/api/v1/toy/operations/toy_add"]["post"], paths["/api/v1/toys"]["get"]
    for answer in (answer for call in calls for answer in call["responses"].values() if "content" in answer):
        assert answer["content"]["application/json"]["schema"] == {"type": "object"}, "its replies are no envelope"


def test_its_setting_holds_and_is_listed(hub: Hub, command: Path) -> None:
    hub.call("settings_update", values={"toy_limit": 1})
    assert add(hub, "one").status_code == 200
    full = add(hub, "two")
    assert (full.status_code, full.json()) == (409, {"failed": "INVALID_TRANSITION"})
    assert "toy_limit" in httpx.get(f"{hub.url}/admin/settings/?q=toy").text
    refused = run(command, hub.home, "toys", "--toy-limit", "0")
    assert refused.returncode == 1 and "CONFIG_ERROR: --toy-limit" in refused.stderr
    assert "NEXUS_TOY_LIMIT" in run(command, hub.home, "toys", "--help-all").stdout


def test_its_lane_is_pruned_after_its_window(hub: Hub, command: Path) -> None:
    add(hub, "old", days_old=3)
    add(hub, "new", days_old=1)
    pruned = run(command, hub.home, "prune", "--json")
    assert json.loads(pruned.stdout)["lanes"]["toys"]["deleted"] == 1, pruned.stderr
    assert httpx.get(f"{hub.url}/api/v1/toys").json() == {"toys": ["new"]}


def test_its_command_is_a_command_of_nexus(hub: Hub, command: Path) -> None:
    add(hub, "top")
    listed = run(command, hub.home, "toys")
    assert (listed.returncode, listed.stdout.split()) == (0, ["toy", "top"]), listed.stderr


def test_its_page_is_in_the_dashboard(hub: Hub) -> None:
    add(hub, "<b>ball</b>")
    page = httpx.get(f"{hub.url}/admin/toys/")
    assert page.status_code == 200 and "&lt;b&gt;ball&lt;/b&gt;" in page.text
    assert "Toy shelf" in page.text and 'href="/admin/inbox/message/"' in page.text, "within the frame of every page"
    assert 'href="/admin/toys/"' in httpx.get(f"{hub.url}/admin/").text


async def test_its_tools_are_served_over_mcp_to_who_chooses_them(hub: Hub, command: Path) -> None:
    def client(*flags: str) -> Client:
        return Client(pipes(environment(hub.home), *flags, program=command))

    async with client("--toolsets", "toy") as toys:
        assert toys.instructions == "Put your toys back."
        assert {tool.name for tool in (await toys.list_tools()).tools} == {"toy_add", "toy_list", "toolset_enable"}
        added = await toys.call_tool("toy_add", {"name": "drum"})
        assert added.structured_content["added"] == "drum"
        assert added.structured_content["by"].startswith("stdio:")
        assert added.content[0].text == "The shelf says ['added', 'by']."  # type: ignore[union-attr]
    async with client() as team:
        names = {tool.name for tool in (await team.list_tools()).tools}
        assert "toy_add" not in names and {"inbox_pull", "toolset_enable"} <= names


def test_it_goes_with_its_line_and_the_store_works_on(command: Path, tmp_path: Path, furnish: Furnish) -> None:
    home = furnish(tmp_path / "home")
    kept = run(command, home, "settings", "set", "toy_limit", "7")
    assert kept.returncode == 0, kept.stderr
    assert run(command, home, "toys", "--json").returncode == 0

    gone = nexus(home, "toys")
    assert gone.returncode == 1 and "toys" in gone.stderr
    for line in ("settings list --json", "doctor --json", "prune --json", "agents create ann --json"):
        done = nexus(home, *line.split())
        assert done.returncode == 0 and "toy" not in done.stdout, (line, done.stdout, done.stderr)

    assert '"toy_limit"' in run(command, home, "settings", "list", "--json").stdout


def test_nothing_else_had_to_know_of_it() -> None:
    named = [
        file
        for file in ROOT.rglob("*.py")
        if file.relative_to(ROOT).parts[0] not in ("tests", ".venv", ".venv-node")
        and any(word in file.read_text() for word in ("toy_", '"toy"'))
    ]
    assert named == []
