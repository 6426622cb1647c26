"""`nexus workspaces move`: what belongs to a directory that was renamed belongs to its new path."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command

from coordination.models import Artifact, Event, Workspace
from coordination.paths import workspace_id_of
from nexus.core.operations import dispatch
from nexus.core.operations.registry import Toolset
from nexus.hooks import setup_record
from nexus.hooks.harness import setup_file
from nexus.planning.toolset import PLANNING
from nexus.reservations.toolset import FILES
from tests.conftest import LOCAL, Call

pytestmark = pytest.mark.usefixtures("committed")


@pytest.fixture(autouse=True)
def home(configure: Callable[..., None], tmp_path: Path) -> Path:
    (tmp_path / "home").mkdir(mode=0o700)
    configure(home=tmp_path / "home", db_path=None)
    return tmp_path / "home"


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    root = tmp_path.resolve() / "shop"
    (root / "api").mkdir(parents=True)
    return root


def does(toolset: Toolset, name: str, root: Path, **arguments: Any) -> dict[str, Any]:
    body: dict[str, Any] = dispatch.run(toolset, LOCAL, name, {"project_root": str(root), **arguments})
    assert body["ok"], body
    data: dict[str, Any] = body["data"]
    return data


def move(*paths: str | Path, code: int = 0) -> list[dict[str, Any]]:
    """What the command says of each workspace; its error where it fails."""
    out, err = io.StringIO(), io.StringIO()
    with pytest.raises(SystemExit) as left:
        call_command("workspaces", "move", *map(str, paths), "--json", stdout=out, stderr=err)
    assert left.value.code == code, (out.getvalue(), err.getvalue())
    rows: list[dict[str, Any]] = json.loads(out.getvalue())["workspaces"] if code == 0 else [{"why": err.getvalue()}]
    return rows


def fill(call: Call, root: Path) -> str:
    """Something of everything; the handoff's id."""
    for agent_id in ("ann", "ben"):
        call("agent_register", agent_id=agent_id)
    workspace = call("workspace_resolve", project_root=str(root), display_name="The shop")["workspace_id"]
    call("session_open", agent_id="ann", workspace_id=workspace)
    channels = call("channel_list", project_root=str(root))["channels"]
    mail = {"project_root": str(root), "from_agent_id": "ann", "channel_id": channels[0]["channel_id"]}
    call("message_create", **mail, subject="Hello", body="there", target={"strategy": "direct", "agent_id": "ben"})
    call("artifact_put", project_root=str(root), artifact_type="text", content="A text", name="text")
    does(PLANNING, "plan_start", root, topic="Sell", issues=["What?"], research_summary="")
    does(PLANNING, "task_add", root, title="Sell it", context="All of it.", owner="ann")
    does(FILES, "files_reserve", root, agent_id="ann", paths=["src/a.py"])
    about = {"target": {"strategy": "direct", "agent_id": "ben"}, "visibility": "public", "payload": {}}
    return str(call("handoff_create", project_root=str(root), from_agent_id="ann", **about)["handoff_id"])


def test_all_of_a_project_follows_its_directory(call: Call, shop: Path) -> None:
    handoff_id = fill(call, shop)
    inner = shop / "api"
    does(FILES, "files_reserve", inner, agent_id="ben", paths=["b.py"])
    old = Event.objects.filter(workspace=workspace_id_of(str(shop)))
    told = old.count()
    store = shop.rename(shop.parent / "store")
    # Somebody works there before it is moved.
    call("channel_list", project_root=str(store))
    again = call("workspace_resolve", project_root=str(store))["workspace_id"]
    assert again == workspace_id_of(str(store))

    moved = move(shop, store)

    assert [(row["old_root"], row["root_realpath"], row["left"]) for row in moved] == [
        (str(shop), str(store), []),
        (str(inner), str(store / "api"), []),
    ]
    assert moved[0]["display_name"] == "The shop"
    assert call("handoff_claim", project_root=str(store), handoff_id=handoff_id, agent_id="ben")
    mail = call("inbox_pull", agent_id="ben")["messages"]
    assert "Hello" in [message["subject"] for message in mail]
    assert {message["workspace_id"] for message in mail} == {again}
    assert len(call("channel_list", project_root=str(store))["channels"]) == 1
    assert Artifact.objects.get().workspace_id == again
    assert does(PLANNING, "plan_status", store)["topic"] == "Sell"
    assert [row["title"] for row in does(PLANNING, "task_list", store)["tasks"]] == ["Sell it"]
    assert [row["agent_id"] for row in does(FILES, "files_who", store, path="src/a.py")["held"]] == ["ann"]
    assert [row["agent_id"] for row in does(FILES, "files_who", store / "api", path="b.py")["held"]] == ["ben"]
    assert old.count() == told  # the log is append-only
    assert Event.objects.get(type="workspace.moved").payload["project_root"] == str(store)


def test_what_the_new_path_cannot_take_stays_and_is_named(call: Call, shop: Path) -> None:
    fill(call, shop)
    store = shop.parent / "store"
    store.mkdir()
    does(PLANNING, "plan_start", store, topic="Store", issues=["Why?"], research_summary="")
    does(PLANNING, "task_add", store, title="Store it", context="All of it.", owner="ben")
    shop.rename(shop.parent / "gone")
    [moved] = move(shop, store)
    assert moved["left"] == ["planning"]
    assert [row["title"] for row in does(PLANNING, "task_list", store)["tasks"]] == ["Store it"]
    assert [row["agent_id"] for row in does(FILES, "files_who", store, path="src/a.py")["held"]] == ["ann"]


def test_it_says_what_cannot_be_moved(call: Call, shop: Path, tmp_path: Path) -> None:
    fill(call, shop)
    assert "NOT_FOUND" in move(tmp_path / "nowhere", shop, code=1)[0]["why"]
    assert f"{shop} is still there" in move(shop, shop, code=1)[0]["why"]
    (tmp_path / "store").mkdir()
    assert f"{shop} is still there" in move(shop, tmp_path / "store", code=1)[0]["why"]
    shop.rename(tmp_path / "elsewhere")
    assert "WORKSPACE_UNRESOLVED" in move(shop, tmp_path / "missing", code=1)[0]["why"]
    assert not Workspace.objects.filter(root_realpath=str(tmp_path / "store")).exists()


def test_a_link_may_be_left_at_the_old_path(call: Call, shop: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(call, shop)
    call("workspace_resolve", project_root=str(shop / "api"))
    (shop.parent / "shop-of-another").mkdir()
    other = call("workspace_resolve", project_root=str(shop.parent / "shop-of-another"))
    store = shop.rename(shop.parent / "store")
    shop.symlink_to(store)
    monkeypatch.chdir(shop.parent)
    assert len(move("shop/", "store")) == 2
    assert Workspace.objects.get(pk=other["workspace_id"]).root_realpath == other["root_realpath"]
    assert does(PLANNING, "plan_status", shop)["topic"] == "Sell"


def test_what_setup_recorded_follows(call: Call, shop: Path, home: Path) -> None:
    call("workspace_resolve", project_root=str(shop))
    with setup_record.lock(home):
        written = setup_record.Written(None, "{}", [], [str(shop / ".cursor")])
        setup_record.save(home, setup_record.Record(str(shop), {str(shop / ".cursor" / "mcp.json"): written}))
    store = shop.rename(shop.parent / "store")
    move(shop, store)
    record = setup_record.load(home, store)
    assert list(record.files) == [str(store / ".cursor" / "mcp.json")]
    assert record.files[str(store / ".cursor" / "mcp.json")].made == [str(store / ".cursor")]
    assert not setup_file(home, shop).exists()
