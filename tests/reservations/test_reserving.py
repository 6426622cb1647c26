"""Reserving files: who may have which together, what a refusal tells, and what a retry answers."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest
from django.db import connection
from hypothesis import HealthCheck, assume, example, given, settings
from hypothesis import strategies as st

from coordination.models import Event
from nexus.core.database.store import write
from nexus.reservations import patterns
from nexus.reservations.models import Reservation
from tests.conftest import Call, examples
from tests.reservations.conftest import Project
from tests.reservations.git import Repo


def test_it_refuses_what_another_has_exclusively(shop: Project) -> None:
    shop.reserve("ann", "src/", reason="the new parser", seconds=60)
    error = shop.refused("reserve", agent_id="bob", paths=["src/app.py", "docs/"])
    assert error["code"] == "FILES_RESERVED"
    [row] = error["details"]["refused"]
    assert (row["path"], row["held"]["agent_id"], row["held"]["reason"]) == ("src/app.py", "ann", "the new parser")
    for said in ("src/app.py", "/src/", "'ann'", "the new parser", row["held"]["expires_at"], "timeout_seconds", "ask"):
        assert said in error["message"]
    assert shop.held() == [("ann", "/src/")]  # nothing of bob's, docs/ neither


def test_it_takes_what_is_free_where_that_is_asked_for(shop: Project) -> None:
    shop.reserve("ann", "/src/")
    data = shop.call("reserve", agent_id="bob", paths=["src/app.py", "docs/"], all_or_nothing=False)
    assert [row["pattern"] for row in data["reservations"]] == ["/docs/"]
    assert [(row["path"], row["held"]["agent_id"]) for row in data["refused"]] == [("src/app.py", "ann")]
    assert shop.in_the_way("bob", "src/app.py", all_or_nothing=False) == [("ann", "/src/")]


def test_it_lets_several_read_what_nobody_edits(shop: Project) -> None:
    shop.reserve("ann", "docs/", exclusive=False)
    shop.reserve("bob", "docs/*.md", exclusive=False)
    assert shop.in_the_way("cas", "docs/a.md") == [("ann", "/docs/"), ("bob", "docs/*.md")]
    shop.reserve("cas", "/src/")
    assert shop.in_the_way("ann", "src/a.py", exclusive=False) == [("cas", "/src/")]


@pytest.mark.sqlite  # which alone is told to read the other way round
def test_it_tells_of_the_oldest_first_in_whatever_order_the_store_reads(shop: Project) -> None:
    shop.reserve("ann", *(f"src/{number}.py" for number in range(5)))
    with connection.cursor() as cursor:
        cursor.execute("PRAGMA reverse_unordered_selects = ON")
        try:
            assert shop.in_the_way("bob", "src/") == [("ann", f"src/{number}.py") for number in range(3)]
            released = shop.call("release", agent_id="ann")["released"]
        finally:
            cursor.execute("PRAGMA reverse_unordered_selects = OFF")
    assert [row["pattern"] for row in released] == [f"src/{number}.py" for number in range(5)]


def test_it_is_in_no_conflict_with_its_own(shop: Project) -> None:
    shop.reserve("ann", "/src/")
    shop.reserve("ann", "src/app.py")
    shop.reserve("ann", "src/**", exclusive=False)
    assert len(shop.held()) == 3


def test_it_holds_on_what_one_has_already(shop: Project) -> None:
    first = shop.reserve("ann", "src/", seconds=10)
    assert shop.reserve("ann", "**/src/", "docs/", seconds=600)[0] != first[0]
    again = shop.reserve("ann", "./src//", seconds=600)
    assert again == first
    assert Reservation.objects.get(pk=first[0]).seconds == 600
    assert Event.objects.filter(type="file.extended").count() == 1


name = st.lists(st.sampled_from(["a", "b", ".", "é", "e\u0301", r"\a", "*", "**", "?"]), min_size=1, max_size=4)
globs = st.builds(
    lambda names, end: "./" + "/".join(map("".join, names)) + end,
    st.lists(name, min_size=1, max_size=4),
    st.sampled_from(["", "", "/"]),
)
HELD = (
    *("a.b", "b.a", "b.é", "ab.b", "b/a.b", "a/ab.a", "a/b/a.b", "ba/b/b.a", "ab/aé/é.b", "a/a/a/a/a/a/a/a/a.b"),
    *("a", "b/", "a/b", "*.b", "**/a*.a", "a/*/b.a", "a**/b.a", r"b/a\b.a", "[ab].b", "a/?.b", "**/b/**", "é*/a.a"),
)


@settings(max_examples=examples(30), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(wanted=globs)
@example(wanted="a**/b.a")
@example(wanted="**/*é.b")
@example(wanted="**/*e\u0301.b")
@example(wanted="a**/a*")
@example(wanted="**/*ab.a")
def test_the_store_leaves_out_nothing_that_overlaps(shop: Project, wanted: str) -> None:
    if not Reservation.objects.exists():
        for number, each in enumerate(HELD):
            shop.reserve(f"agent-{number}", each, exclusive=False)
    try:
        kept = patterns.normalized(wanted)
    except ValueError:
        assume(False)
    overlapping = [held for held in map(patterns.normalized, HELD) if patterns.overlap(kept, held)]
    assert sorted(pattern for _, pattern in shop.held(wanted)) == sorted(overlapping)


def test_it_reserves_in_one_project_what_is_free_in_another(shop: Project, tmp_path: Path) -> None:
    shop.reserve("ann", "/src/")
    other = tmp_path / "other"
    other.mkdir()
    assert Project(other).reserve("bob", "src/")


def test_it_answers_a_retry_with_the_first_result(shop: Project) -> None:
    first = shop.call("reserve", agent_id="ann", paths=["a.py", "b.py"], client_id="c1")
    again = shop.call("reserve", agent_id="ann", paths=["a.py", "b.py"], client_id="c1")
    assert again == {**first, "duplicate": True}
    assert shop.call("reserve", agent_id="bob", paths=["c.py"], client_id="c1")["reservations"]  # another's own
    shop.call("release", agent_id="ann")
    late = shop.call("reserve", agent_id="ann", paths=["a.py", "b.py"], client_id="c1")
    assert [row["outcome"] for row in late["reservations"]] == ["released", "released"]
    assert Event.objects.filter(type="file.reserved").count() == 2


def test_it_takes_no_other_wish_for_a_retry(shop: Project) -> None:
    [first] = shop.reserve("ann", "a.py", client_id="c1")
    for other in ({"paths": ["b.py"]}, {"paths": ["a.py"], "exclusive": False}):
        error = shop.refused("reserve", **{"agent_id": "ann", "client_id": "c1", **other})
        assert error["code"] == "VALIDATION_ERROR" and error["details"]["first"] == first
    assert shop.held() == [("ann", "/a.py")]


def test_it_tells_a_retry_what_one_had_already(shop: Project) -> None:
    [had] = shop.reserve("ann", "a.py")
    asked: dict[str, Any] = {"agent_id": "ann", "paths": ["b.py", "a.py"], "client_id": "c"}
    first, again = shop.call("reserve", **asked), shop.call("reserve", **asked)
    assert sorted(row["reservation_id"] for row in again["reservations"]) == sorted(
        row["reservation_id"] for row in first["reservations"]
    )
    assert had in [row["reservation_id"] for row in again["reservations"]]


def test_it_tells_a_retry_what_was_in_the_way(shop: Project) -> None:
    shop.reserve("bob", "b.py")
    asked: dict[str, Any] = {"agent_id": "ann", "paths": ["a.py", "b.py"], "client_id": "c1", "all_or_nothing": False}
    first = shop.call("reserve", **asked)
    assert shop.call("reserve", **asked) == {**first, "duplicate": True}


def test_it_asks_the_holder_once(shop: Project, call: Call) -> None:
    for agent in ("ann", "bob"):
        call("agent_register", agent_id=agent)
    shop.reserve("ann", "/src/")
    error = shop.refused("reserve", agent_id="bob", paths=["src/app.py"], reason="a hotfix", ask=True)
    assert error["details"]["asked"] == ["ann"]
    assert "asked" not in shop.refused("reserve", agent_id="bob", paths=["src/app.py"], ask=True)["details"]
    [message] = call("inbox_pull", agent_id="ann")["messages"]
    assert message["from_agent_id"] == "bob"
    assert all(word in message["body"] for word in ("src/app.py", "a hotfix", "files_release"))
    assert Event.objects.get(type="file.asked").payload["holder"] == "ann"


def test_it_asks_nobody_who_is_not_registered(shop: Project) -> None:
    shop.reserve("ann", "/src/")
    assert "asked" not in shop.refused("reserve", agent_id="bob", paths=["src/app.py"], ask=True)["details"]


@pytest.mark.parametrize(
    ("path", "says"),
    [
        ("../other/a.py", "part .."),
        ("/etc/passwd", "outside of the project"),
        ("~/notes", "outside of the project"),
        ("C:\\work\\a.py", "outside of the project"),
        ("!src/", "begins with !"),
        ("src/\x07", "control character"),
        ("x" * 2000, "1024 characters"),
    ],
)
def test_it_says_what_to_write_instead_of_a_path_that_cannot_be_reserved(shop: Project, path: str, says: str) -> None:
    for verb, more in (("reserve", {"agent_id": "ann", "paths": [path]}), ("who", {"path": path})):
        error = shop.refused(verb, **more)
        assert error["code"] == "VALIDATION_ERROR"
        assert says in error["message"]
    assert not Reservation.objects.exists()


@pytest.mark.parametrize(
    "wrong",
    [
        {"paths": []},
        {"paths": [" "]},
        {"paths": ["a"] * 201},
        {"paths": ["a\0b"]},
        {"paths": "a"},
        {"seconds": 9},
        {"seconds": 86_401},
        {"seconds": True},
        {"timeout_seconds": -1},
        {"task_id": 0},
        {"path": "a"},
    ],
)
def test_it_refuses_malformed_arguments(shop: Project, wrong: dict[str, Any]) -> None:
    assert shop.refused("reserve", **{"agent_id": "ann", "paths": ["a"], **wrong})["code"] == "VALIDATION_ERROR"


def test_it_takes_absolute_paths_below_the_root(shop: Project, tmp_path: Path) -> None:
    (shop.root / "src").mkdir()
    (tmp_path / "link").symlink_to(shop.root)
    data = shop.call("reserve", agent_id="ann", paths=[f"{shop.root}/src", f"{shop.root}/setup.py"])
    assert [row["pattern"] for row in data["reservations"]] == ["/src/", "/setup.py"]
    linked = Project(tmp_path / "link")
    assert linked.in_the_way("bob", f"{tmp_path}/link/src/a.py") == [("ann", "/src/")]
    assert shop.call("who", path=str(shop.root))["pattern"] == "/**"


def test_it_takes_paths_of_a_container(shop: Project, configure: Callable[..., None]) -> None:
    configure(project_paths=f"/workspaces/shop={shop.root}")
    inside = Project(Path("/workspaces/shop"))
    for project in (shop, inside):  # a call may leave project_root out: then it is the hub's own
        data = project.call("reserve", agent_id="ann", paths=["/workspaces/shop/src/", f"{shop.root}/a.py", "b.py"])
        assert [row["pattern"] for row in data["reservations"]] == ["/src/", "/a.py", "/b.py"]
    assert inside.in_the_way("bob", "/workspaces/shop/src/**/*.py") == [("ann", "/src/")]


@pytest.mark.usefixtures("runs_git")
def test_it_takes_the_work_trees_of_a_repository_for_one(db: None, tmp_path: Path) -> None:
    repo = Repo.make(tmp_path.resolve() / "shop")
    repo.ok("worktree", "add", "-q", str(repo.top / ".trees" / "bob"))
    shop, other = Project(repo.top), Project(repo.top / ".trees" / "bob")
    shop.reserve("ann", "src/")
    assert other.in_the_way("bob", "src/b.py") == [("ann", "/src/")]
    assert other.held("src/b.py") == [("ann", "/src/")]
    assert other.call("reserve", agent_id="ann", paths=["src/b.py"])["refused"] == []
    other.reserve("bob", "a.py", exclusive=False)
    shop.reserve("ann", "a.py", exclusive=False)
    assert shop.in_the_way("cas", "a.py") == [("ann", "/a.py"), ("bob", "/a.py")]
    shop.call("release", agent_id="ann")
    other.call("release", agent_id="ann")
    other.reserve("cas", "src/b.py")


@pytest.mark.usefixtures("runs_git")
def test_it_takes_the_same_part_of_each_work_tree_for_one(db: None, tmp_path: Path) -> None:
    repo = Repo.make(tmp_path.resolve() / "shop")
    repo.ok("worktree", "add", "-q", str(tmp_path / "other"))
    part, other = Project(repo.top / "src"), Project(tmp_path.resolve() / "other" / "src")
    part.reserve("ann", "b.py")
    assert other.in_the_way("bob", "*.py") == [("ann", "/b.py")]
    another = Repo.make(tmp_path.resolve() / "another")
    Project(another.top / "src").reserve("bob", "b.py")


@pytest.mark.usefixtures("runs_git")
def test_it_takes_a_submodule_in_each_work_tree_for_one(db: None, tmp_path: Path) -> None:
    part, whole = Repo.make(tmp_path / "part"), Repo.make(tmp_path.resolve() / "whole")
    local = ("-c", "protocol.file.allow=always", "submodule", "--quiet")
    whole.ok(*local, "add", str(part.top), "lib/part")
    whole.ok("commit", "-qm", "with a part")
    whole.ok("worktree", "add", "-q", str(tmp_path / "other"))
    whole.of("", tmp_path / "other").ok(*local, "update", "--init")
    Project(whole.top / "lib" / "part").reserve("ann", "a.py")
    assert Project(tmp_path.resolve() / "other" / "lib" / "part").in_the_way("bob", "*.py") == [("ann", "/a.py")]
    Project(tmp_path.resolve() / "part").reserve("bob", "a.py")


def test_it_takes_a_directory_for_what_it_is_and_brackets_as_they_are(shop: Project) -> None:
    (shop.root / "conf.d").mkdir()
    shop.reserve("ann", "app/[id]/page.tsx", "conf.d")
    assert shop.held("app/[id]") == [("ann", "app/[id]/page.tsx")]
    assert shop.held("app/i/page.tsx") == []
    assert shop.held("conf.d/site") == [("ann", "/conf.d/")]


def test_it_takes_a_link_for_what_it_leads_to(shop: Project, tmp_path: Path) -> None:
    (shop.root / "real" / "[id]").mkdir(parents=True)
    (shop.root / "real" / "a.py").touch()
    for name, leads in {"link": "real/[id]", "l.py": "real/a.py", "again": "link", "out": str(tmp_path)}.items():
        (shop.root / name).symlink_to(leads)
    (shop.root / "round").symlink_to("round")
    linked = {
        "link": "real/[id]/",
        "link/": "real/[id]/",
        "again/*.py": "real/[id]/*.py",
        f"{shop.root}/l.py": "real/a.py",
        "out/a.py": "out/a.py",
        "round/a.py": "round/a.py",
    }
    assert {path: shop.call("who", path=path)["pattern"] for path in linked} == linked
    shop.reserve("ann", "l.py")
    assert shop.in_the_way("bob", "real/a.py") == [("ann", "real/a.py")]


def test_it_names_what_it_reserved_in_the_log(shop: Project) -> None:
    shop.reserve("ann", *(f"src/{number}.py" for number in range(30)), reason="all of it")
    event = Event.objects.get(type="file.reserved")
    assert (event.stream, event.actor_agent_id, event.payload["count"]) == ("file", "ann", 30)
    assert len(event.payload["patterns"]) == 20
    assert event.payload["reason"] == "all of it"


def test_it_lets_no_agent_hold_everything_file_by_file(shop: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nexus.reservations.services.MOST_HELD", 3)
    shop.reserve("ann", "a", "b", "c")
    error = shop.refused("reserve", agent_id="ann", paths=["d"])
    assert error["code"] == "VALIDATION_ERROR" and "files_release" in error["message"]
    assert shop.reserve("ann", "a") and shop.reserve("bob", "d")


@pytest.fixture
def comparisons(shop: Project, monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str, bool]]:
    """The patterns that are compared from now on, and whether in a transaction: what waits for one, waits for that."""
    depth, pairs = len(connection.savepoint_ids), list[tuple[str, str, bool]]()

    def overlap(one: str, other: str) -> bool:
        pairs.append((one, other, len(connection.savepoint_ids) > depth))
        return patterns.overlap(one, other)

    monkeypatch.setattr("nexus.reservations.selectors.overlap", overlap)
    return pairs


@pytest.mark.parametrize(
    ("held", "exclusive", "wanted", "others"),
    [
        ({"ann": ["**/a*.py", "**/b*.py"], "bob": ["**/c*.py"]}, True, "**/d*.py", ["**/a*.py", "**/b*.py"]),
        ({f"agent-{number}": ["**/a*.py"] for number in range(5)}, False, "**/b*.py", ["**/a*.py"]),
    ],
    ids=["none of its own", "no two twice"],
)
def test_it_compares_each_pattern_of_others_once_and_holds_up_no_writer(
    shop: Project,
    comparisons: list[tuple[str, str, bool]],
    held: dict[str, list[str]],
    exclusive: bool,
    wanted: str,
    others: list[str],
) -> None:
    for agent, globs in held.items():
        shop.reserve(agent, *globs, exclusive=exclusive)
    comparisons.clear()
    shop.reserve("bob", wanted)
    assert sorted(comparisons) == [(wanted, other, False) for other in others]


def test_it_compares_nothing_where_all_only_read(shop: Project, comparisons: list[tuple[str, str, bool]]) -> None:
    for agent in ("ann", "bob"):
        shop.reserve(agent, "**/a*.py", exclusive=False)
    assert comparisons == []


def test_it_refuses_what_would_take_too_long_to_compare(shop: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    shop.reserve("ann", "**/a*.py")
    monkeypatch.setattr("nexus.reservations.selectors.MOST_COMPARED", 160)  # two of three pairs
    shop.reserve("bob", "**/b*.py")
    error = shop.refused("reserve", agent_id="bob", paths=["**/c*.py", "**/d*.py"])
    assert (error["code"], error["details"]["field"]) == ("VALIDATION_ERROR", "paths")
    assert "globs" in error["message"]
    assert shop.held("**/c*.py") == []


def test_it_compares_again_before_the_transaction_what_came_meanwhile(
    shop: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    depth = len(connection.savepoint_ids)
    compared: list[tuple[str, bool]] = []  # what with, and whether in the transaction

    def overlap(one: str, other: str) -> bool:
        within = len(connection.savepoint_ids) > depth
        compared.append((other, within))
        if other == "**/a*.py":
            monkeypatch.setattr("nexus.reservations.services.write", late)
        return patterns.overlap(one, other)

    def late(*names: str) -> AbstractContextManager[None]:
        monkeypatch.setattr("nexus.reservations.services.write", write)
        shop.reserve("cas", "**/c*.py", "**/d*.py", exclusive=False)
        return write(*names)

    shop.reserve("ann", "**/a*.py", exclusive=False)
    monkeypatch.setattr("nexus.reservations.selectors.overlap", overlap)
    monkeypatch.setattr("nexus.reservations.selectors.MOST_IN_TURN", 100)  # one of two patterns
    shop.reserve("bob", "**/b*.py")
    outside = {other for other, within in compared if not within}
    assert {"**/a*.py", "**/d*.py"} <= outside
    assert [other for other, within in compared if within] == ["**/c*.py"]


def test_what_an_operator_does_is_compared_before_its_transaction(
    shop: Project, comparisons: list[tuple[str, str, bool]]
) -> None:
    shop.reserve("ann", "**/a*.py")
    desk = Project(shop.root, operator="ada")
    desk.reserve("bob", "**/b*.py")
    assert desk.in_the_way("bob", "**/a*.py")
    assert desk.call("release", agent_id="bob", paths=["**/b1.py"])["released"] == []
    assert [(other, within) for _, other, within in comparisons] == [("**/a*.py", False)] * 2 + [("**/b*.py", False)]
    acted = Event.objects.filter(type="operator.acted").order_by("event_id").values_list("payload", flat=True)
    assert [(each["operation"], each["agent_id"], each["events"]) for each in acted] == [
        ("files_reserve", "bob", 1),
        ("files_release", "bob", 0),
    ]
