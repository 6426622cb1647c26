"""A plain git remote: work is pushed as a branch, a watched branch that moves is an event, and merged work ends."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from django.test import Client

from coordination.models import Event
from coordination.toolset import run
from handoffs.models import Handoff
from nexus.control.models import PoolWorktree
from nexus.control.toolset import CONTROL
from nexus.core.background_work import work_once
from nexus.core.operations import dispatch
from nexus.forges import remotes
from nexus.forges.models import Forge, ForgeIssue
from nexus.forges.polling import ROUNDS
from tests.conftest import OPERATOR
from tests.forges.test_pulls import AGENT, publish, repository
from tests.git import git

Look = Callable[[], list[Any]]


@pytest.fixture
def project(runs_git: None, tmp_path: Path, configure: Callable[..., None]) -> str:
    return repository(tmp_path, configure)


@pytest.fixture
def remote(project: str, tmp_path: Path) -> Path:
    return tmp_path / "remotes" / "acme" / "shop.git"


@pytest.fixture
def person(runs_git: None, tmp_path: Path, project: str, remote: Path) -> Path:
    """The clone of a person who works without Nexus."""
    git(tmp_path, "clone", "--quiet", str(remote), "person")
    return tmp_path / "person"


@pytest.fixture
def forge(project: str, remote: Path, db: None) -> Forge:
    answer = run(OPERATOR, "forge_connect", {"kind": "git", "repository": f"file://{remote}", "project_root": project})
    assert answer["ok"], answer
    return Forge.objects.get()


@pytest.fixture
def look(forge: Forge) -> Look:
    def looked() -> list[Any]:
        Forge.objects.update(poll_at=forge.created_at, next_attempt_at=None)
        return work_once(ROUNDS)

    return looked


@pytest.fixture
def smith(project: str, forge: Forge) -> str:
    """An agent with a worktree, which is present."""
    made = dispatch.run(CONTROL, OPERATOR, "pool_create_agent", {"agent_id": "smith", "cwd": project, "worktree": True})
    assert made["ok"], made
    opened = run(AGENT, "session_open", {"agent_id": "smith", "workspace_id": forge.workspace_id})
    assert opened["ok"], opened
    return "smith"


@pytest.fixture
def submitted(project: str, smith: str) -> Handoff:
    """Work that smith has done, and that waits for an operator."""
    offer = {"project_root": project, "from_agent_id": "smith", "visibility": "public", "verifier": "operator"}
    made = run(AGENT, "handoff_create", {**offer, "target": {"strategy": "direct", "agent_id": "smith"}})
    assert made["ok"], made
    of = {"project_root": project, "handoff_id": made["data"]["handoff_id"], "agent_id": smith}
    assert run(AGENT, "handoff_claim", of)["ok"]
    (Path(PoolWorktree.objects.get().path) / "cart.py").write_text("items = [1]\n")
    assert run(AGENT, "handoff_complete", {**of, "result": "done"})["ok"]
    return Handoff.objects.get()


@pytest.fixture
def pushed(submitted: Handoff, look: Look) -> ForgeIssue:
    publish(submitted.pk)
    look()
    row = ForgeIssue.objects.get()
    assert row.last_error is None and row.head
    return row


def commit(place: Path, subject: str, *more: str) -> str:
    git(place, "commit", "--quiet", "--allow-empty", "-m", subject, *more)
    return git(place, "rev-parse", "HEAD")


def moves() -> list[str]:
    """The commits to which the watched branch moved."""
    return [event.payload["commit"] for event in Event.objects.filter(type="forge.branch_moved").order_by("event_id")]


def branches(remote: Path) -> list[str]:
    return git(remote, "branch", "--format=%(refname:short)").splitlines()


def test_published_work_is_pushed_as_a_branch_and_merged_ends_it(
    pushed: ForgeIssue, look: Look, remote: Path, person: Path
) -> None:
    branch = PoolWorktree.objects.get().branch
    assert git(remote, "show", f"{branch}:cart.py") == "items = [1]" and git(remote, "rev-parse", branch) == pushed.head
    assert Event.objects.get(type="forge.branch_pushed").payload["branch"] == branch
    look()
    assert Handoff.objects.get().status == "SUBMITTED"
    git(person, "fetch", "--quiet")
    git(person, "merge", "--quiet", "--no-ff", "-m", "Merge it", f"origin/{branch}")
    git(person, "push", "--quiet", "origin", "main", f":{branch}")
    look()
    assert Handoff.objects.get().status == "COMPLETED" and ForgeIssue.objects.get().ended == "merged"
    assert moves() == [git(remote, "rev-parse", "main")]
    calls = Event.objects.count()
    look()
    assert Event.objects.count() == calls, "nothing is said twice"


def test_work_that_ended_before_its_push_is_not_pushed(pushed: ForgeIssue, look: Look, remote: Path) -> None:
    branch = PoolWorktree.objects.get().branch
    git(remote, "branch", "-f", "main", branch)
    git(remote, "branch", "-D", branch)
    publish(pushed.handoff_id)
    look()
    ForgeIssue.objects.update(due_at=pushed.updated_at)
    look()
    assert ForgeIssue.objects.get().ended == "merged" and branches(remote) == ["main"]


def test_squashed_work_counts_as_merged(pushed: ForgeIssue, look: Look, person: Path) -> None:
    git(person, "fetch", "--quiet")
    commit(person, "Something else")
    git(person, "merge", "--quiet", "--squash", f"origin/{PoolWorktree.objects.get().branch}")
    commit(person, "Count the items")
    git(person, "push", "--quiet", "origin", "main")
    look()
    assert Handoff.objects.get().status == "COMPLETED"


def test_work_that_was_merged_before_it_was_compared_ends(
    submitted: Handoff, look: Look, project: str, remote: Path
) -> None:
    look()
    assert run(OPERATOR, "forge_publish", {"handoff_id": submitted.pk, "branch": "main"})["ok"]
    look()
    look()
    assert Handoff.objects.get().status == "COMPLETED" and branches(remote) == ["main"] and moves() == []


def test_approved_work_is_pushed(submitted: Handoff, look: Look, remote: Path) -> None:
    assert run(OPERATOR, "handoff_approve", {"handoff_id": submitted.pk})["ok"]
    look()
    assert branches(remote) == ["main", PoolWorktree.objects.get().branch]
    look()
    assert Event.objects.filter(type="forge.branch_pushed").count() == 1


def test_a_branch_that_moves_is_one_event_of_two_hubs(look: Look, person: Path, forge: Forge) -> None:
    look()
    assert moves() == [], "the first look is where it begins"
    head = commit(person, "Step")
    git(person, "push", "--quiet", "origin", "main")
    steps = []
    for _ in range(2):
        Forge.objects.update(poll_at=forge.created_at)
        steps.append(ROUNDS.claim(forge.pk))
    for step in steps:
        assert step is not None
        ROUNDS.settle(step, ROUNDS.act(step))
    assert moves() == [head]


def test_a_pushed_branch_that_is_deleted_ends_nothing(pushed: ForgeIssue, look: Look, remote: Path) -> None:
    branch = PoolWorktree.objects.get().branch
    git(remote, "branch", "-D", branch)
    look()
    assert Handoff.objects.get().status == "SUBMITTED"
    publish(pushed.handoff_id)
    look()
    assert branch in branches(remote)


def test_nothing_is_pushed_by_force(submitted: Handoff, look: Look, remote: Path, person: Path) -> None:
    branch = PoolWorktree.objects.get().branch
    theirs = commit(person, "Mine")
    git(person, "push", "--quiet", "origin", f"main:{branch}")
    publish(submitted.pk)
    look()
    assert ForgeIssue.objects.get().last_error and git(remote, "rev-parse", branch) == theirs


def test_a_remote_that_is_away_is_a_failure_until_it_is_back(
    look: Look, remote: Path, person: Path, browser: Client
) -> None:
    look()
    commit(person, "Step")
    git(person, "push", "--quiet", "origin", "main")
    remote.rename(remote.with_name("away"))
    look()
    look()
    row = Forge.objects.get()
    assert row.failures == 2 and row.last_error and row.next_attempt_at is not None
    assert "cannot be reached" in browser.get("/admin/attention/").text
    remote.with_name("away").rename(remote)
    look()
    assert Forge.objects.get().failures == 0 and len(moves()) == 1


def test_a_watched_branch_that_is_deleted_is_a_failure(project: str, forge: Forge, remote: Path, look: Look) -> None:
    again = {"kind": "git", "repository": str(remote), "project_root": project, "base": "release"}
    assert run(OPERATOR, "forge_connect", again)["ok"] and Forge.objects.count() == 1
    look()
    assert Forge.objects.get().last_error == "the remote has no branch release"
    git(remote, "branch", "release", "main")
    look()
    assert Forge.objects.get().last_error is None and moves() == []


def test_hooks_of_a_remote_have_no_network_and_no_files_of_the_operator(
    sandboxed: None, submitted: Handoff, look: Look, remote: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / ".ssh").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path))
    hook = remote / "hooks" / "pre-receive"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text(f'#!/bin/sh\n{{ ls -a {tmp_path}; cat /proc/net/dev; env; }} > "$PWD/seen" 2>&1\n')
    hook.chmod(0o755)
    publish(submitted.pk)
    look()
    assert ForgeIssue.objects.get().last_error is None
    seen = (remote / "seen").read_text()
    assert (
        ".ssh" not in seen.splitlines()
        and "nexus.db" not in seen
        and [line for line in seen.splitlines() if "eth" in line] == []
    )


def test_the_operators_configuration_gives_the_login_and_the_projects_does_not(
    sandboxed: None,
    submitted: Handoff,
    look: Look,
    project: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    github: Any,
) -> None:
    """Over HTTP, with a credential helper of the operator."""
    home = tmp_path / "operator"
    home.mkdir()
    github.repositories = tmp_path / "http"
    bare = tmp_path / "http" / "acme" / "shop.git"
    bare.parent.mkdir(parents=True)
    git(tmp_path, "clone", "--quiet", "--bare", project, str(bare))
    git(bare, "config", "http.receivepack", "true")
    host = github.url.removeprefix("http://")
    (home / ".gitconfig").write_text("[credential]\n\thelper = store\n")
    (home / ".git-credentials").write_text(f"http://x-access-token:{github.token}@{host}\n")
    monkeypatch.setenv("HOME", str(home))
    seen = tmp_path / "seen"
    for place in (Path(project), Path(PoolWorktree.objects.get().path)):
        git(place, "config", "credential.helper", f"!env > {seen}; true")
        git(place, "config", f"url.{tmp_path}/evil.insteadOf", github.url)
    run(OPERATOR, "forge_disconnect", {"forge_id": Forge.objects.get().pk})
    given = {"kind": "git", "repository": f"{github.url}/acme/shop.git", "project_root": project}
    assert run(OPERATOR, "forge_connect", given)["ok"]
    publish(submitted.pk)
    work_once(ROUNDS)
    assert (ForgeIssue.objects.get().last_error, Forge.objects.get().last_error) == (None, None)
    assert branches(bare) == ["main", PoolWorktree.objects.get().branch] and not seen.exists()


def test_it_refuses_what_is_no_remote(project: str, remote: Path, db: None) -> None:
    for wrong in (
        {"repository": "ext::sh -c id"},
        {"repository": "--upload-pack=id"},
        {"repository": "-oProxyCommand=id@host:x"},
        {"repository": "ssh://-oProxyCommand=id/x"},
        {"repository": "https://ann:secret@example.com/shop.git"},
        {"repository": "git://example.com/shop.git"},
        {"repository": "shop.git"},
        {"repository": "/nowhere"},
        {"token": "t"},
        {"url": "https://example.com"},
        {"label": "nexus"},
        {"target": {"strategy": "broadcast"}},
        {"base": "a..b"},
        {"base": "--all"},
    ):
        given = {"kind": "git", "repository": str(remote), "project_root": project, **wrong}
        assert run(OPERATOR, "forge_connect", given)["error"]["code"] == "VALIDATION_ERROR", wrong
    assert not Forge.objects.exists()


@pytest.mark.parametrize(
    "address",
    ["git@example.com:acme/shop.git", "ssh://git@example.com:2222/shop.git", "https://example.com/shop.git"],
)
def test_it_takes_the_usual_addresses(address: str) -> None:
    assert remotes.address_of(address) == address


def test_a_project_has_one_remote(project: str, forge: Forge, tmp_path: Path) -> None:
    other = {"kind": "git", "repository": "https://example.com/shop.git", "project_root": project}
    assert run(OPERATOR, "forge_connect", other)["error"]["code"] == "VALIDATION_ERROR"


def test_it_has_neither_issues_nor_a_webhook(forge: Forge, browser: Client) -> None:
    assert run(OPERATOR, "forge_take", {"forge_id": forge.pk, "number": 1})["error"]["code"] == "NOT_FOUND"
    path = f"/api/v1/forges/{forge.pk}/webhook"
    assert Client().post(path, b"{}", content_type="application/json").status_code == 401


def test_the_list_connects_it(project: str, remote: Path, db: None, browser: Client) -> None:
    run(OPERATOR, "forge_connect", {"kind": "gitlab", "repository": "a/b", "project_root": project, "token": "t"})
    form = {"kind": "git", "repository": str(remote), "project_root": project, "base": "main"}
    assert browser.post("/admin/forges/forge/add/", form).status_code == 302
    assert str(remote) in browser.get("/admin/forges/forge/").text and Forge.objects.get(kind="git").base == "main"
