"""The review of finished work over real git: what is merged, kept and lost, and what its commits prove."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from inbox import receipts
from nexus.control.models import PoolAgent, WorktreeMerge
from nexus.control.review.reviews import LOOK
from nexus.control.worktrees import worktrees
from nexus.control.worktrees.lane import LANE_WORK
from nexus.core.background_work import work_once
from tests.conftest import does as do
from tests.control.test_reviews import Make, call, comment, make, offer, refused, send_mail, waiting, works
from tests.control.test_worktrees import pool, repository, told
from tests.git import git

__all__ = ["make", "pool", "repository"]


def test_approval_is_of_what_was_seen(make: Make, repository: Path) -> None:
    place = make("smith", notes="two\n")
    seen = call("pool_get_review", agent_id="smith")["seen"]
    (place / "notes.txt").write_text("evil\n")
    error = refused("pool_approve_work", agent_id="smith", seen=seen)
    assert "changed since you looked" in error["message"] and not WorktreeMerge.objects.exists()
    assert git(place, "status", "--porcelain") == "M notes.txt", "nothing was committed"
    assert refused("pool_add_comment", agent_id="smith", text="x", seen=seen)["code"] == "WORKTREE_REFUSED"
    draft = comment(text="One thing")
    seen = call("pool_get_review", agent_id="smith")["seen"]
    assert "not sent yet" in refused("pool_approve_work", agent_id="smith", seen=seen)["message"]
    call("pool_remove_comment", comment_id=draft["comment_id"])
    assert call("pool_approve_work", agent_id="smith", seen=seen)["state"] == "waiting"
    assert waiting() == []
    work_once(LANE_WORK)
    assert (repository / "notes.txt").read_text() == "evil\n"
    works("smith")
    work_once(LOOK)
    assert waiting() == [], "nothing is new"
    (place / "notes.txt").write_text("three\n")
    works("smith")
    work_once(LOOK)
    assert waiting() == ["smith"]


def test_a_change_between_the_look_and_the_hand_in_is_not_approved(
    make: Make, repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = make("smith", notes="two\n")
    seen = call("pool_get_review", agent_id="smith")["seen"]
    look = worktrees.compare

    def meanwhile(*given: Any) -> Any:
        found = look(*given)
        (place / "notes.txt").write_text("evil\n")
        return found

    monkeypatch.setattr(worktrees, "compare", meanwhile)
    assert "changed since" in refused("pool_approve_work", agent_id="smith", seen=seen)["message"]
    assert not WorktreeMerge.objects.exists()


def test_a_person_abandons_work(make: Make, repository: Path) -> None:
    other = make("other", notes="three\n")
    handoff_id = offer(repository, "Do it", to="other", verifier="operator")
    own = {"project_root": str(repository), "handoff_id": handoff_id, "agent_id": "other"}
    do("handoff_claim", **own)
    do("handoff_complete", **own, result="Did it")
    assert call("pool_abandon_work", agent_id="other")["opened"] == handoff_id
    assert not other.exists() and PoolAgent.objects.get(agent_id="other").ended_at is not None
    kept = git(repository, "for-each-ref", "--format=%(refname)", "refs/nexus/discarded").split("\n")
    assert any(git(repository, "show", f"{ref}:notes.txt") == "three" for ref in kept)
    assert do("handoff_get", **{**own, "agent_id": "lead"})["data"]["status"] == "OPEN"
    assert waiting() == []
    assert told("worktree.discarded") == ["worktree.discarded"]


def test_an_agent_ends_only_with_its_work(make: Make) -> None:
    place = make("smith", notes="two\n")
    (place / ".gitignore").write_text("large\n")
    (place / "large").write_bytes(bytes(2_000_000))
    assert "cannot keep" in refused("pool_abandon_work", agent_id="smith")["message"]
    assert PoolAgent.objects.get().ended_at is None and place.exists()
    assert call("pool_abandon_work", agent_id="smith", lost_too=True)["state"] == "discarded"


def acted(message_id: str) -> dict[str, list[str]]:
    """What proves that the recipients of a message acted on it."""
    rows = do("message_receipts", message_id=message_id)["data"]["receipts"]
    return {row["recipient"]: row["stages"][-1].get("evidence", []) for row in rows}


def commit(place: Path, text: str) -> str:
    """Commit, as the agent of a worktree."""
    git(place, "add", "--all")
    git(place, "commit", "--quiet", "--allow-empty", "-m", text)
    return git(place, "rev-parse", "HEAD").strip()


def test_a_commit_that_names_a_message_is_evidence_of_its_recipient(make: Make, repository: Path) -> None:
    place = make("smith", notes="two\n")
    make("jones")
    both, other = send_mail(repository, "smith", "jones"), send_mail(repository, "jones")
    first = commit(place, f"Say one\n\nSeveral lines.\n\nNexus-Message: {both}\nNexus-Message: {other}")
    assert acted(both) == {"smith": [], "jones": []}, "nobody has read it yet"
    works("smith")
    work_once(LOOK)
    assert acted(both) == {"smith": [f"commit {first[:12]} on nexus/smith, as its text says"], "jones": []}
    assert acted(other) == {"jones": []}, "smith got no such message"
    again = [commit(place, f"As {both} says, {number}") for number in range(receipts.SHOWN)]
    call("pool_approve_work", agent_id="smith", seen=call("pool_get_review", agent_id="smith")["seen"])
    known = acted(both)["smith"]
    assert len(known) == receipts.SHOWN and again[-1][:12] in known[1]


def test_commits_of_others_that_an_agent_took_are_none_of_its_own(make: Make, repository: Path) -> None:
    place = make("smith", notes="two\n")
    both = send_mail(repository, "smith", "jones")
    git(repository, "commit", "--quiet", "--allow-empty", "-m", f"Nexus-Message: {both}")
    git(place, "pull", "--quiet", "--ff-only", str(repository), "HEAD")
    works("smith")
    work_once(LOOK)
    assert acted(both)["smith"] == []


def test_what_a_commit_says_beyond_ids_of_mail_changes_nothing(make: Make, repository: Path) -> None:
    place = make("smith", notes="two\n")
    mail = send_mail(repository, "smith")
    commit(place, f"x{mail} {mail}0 msg_{'0' * 32} msg_$(touch /tmp/pwned)\n\n0\n0\n 9 files changed\n")
    works("smith")
    work_once(LOOK)
    assert acted(mail) == {"smith": []}
    row = call("pool_list_reviews")["reviews"][0]
    assert (row["files"], row["added"], row["removed"]) == (1, 1, 1)
