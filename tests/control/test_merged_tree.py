"""What is approved is what is merged: the tree that the branch will have, whatever the agent's history says."""

from __future__ import annotations

import json
from io import StringIO
from pathlib import Path

import pytest
from django.core.management import call_command
from django.test import Client as Browser

from nexus.control.models import PoolWorktree, Turn, WorktreeMerge
from nexus.control.review.reviews import LOOK
from nexus.control.worktrees.lane import LANE_WORK
from nexus.core.background_work import work_once
from tests.control.test_reviews import Make, call, comment, make, refused, waiting, works
from tests.control.test_worktree_page import words
from tests.control.test_worktrees import pool, repository
from tests.git import git
from tests.pages import shown

__all__ = ["make", "pool", "repository"]

LINES = [f"line {number}\n" for number in range(30)]


def review(agent_id: str = "smith") -> dict[str, object]:
    return call("pool_get_review", agent_id=agent_id)


def approve(agent_id: str = "smith", **more: object) -> WorktreeMerge:
    merge = call("pool_approve_work", agent_id=agent_id, seen=review(agent_id)["seen"], **more)
    return WorktreeMerge.objects.get(pk=merge["merge_id"])


def taken(entry: WorktreeMerge) -> WorktreeMerge:
    work_once(LANE_WORK)
    entry.refresh_from_db()
    return entry


def commit(place: Path, **files: str) -> str:
    for name, text in files.items():
        (place / f"{name}.txt").write_text(text)
    git(place, "add", "--all")
    git(place, "commit", "--quiet", "-m", f"Write {' '.join(files)}")
    return git(place, "rev-parse", "HEAD")


def look_again(agent_id: str = "smith") -> None:
    works(agent_id)
    work_once(LOOK)


def test_a_merge_that_keeps_only_its_own_side_is_shown_as_what_it_undoes(make: Make, repository: Path) -> None:
    place = make("smith", mine="mine\n")
    theirs = commit(repository, notes="one\ntheirs\n", theirs="theirs\n")
    git(place, "add", "--all")
    git(place, "commit", "--quiet", "-m", "Mine")
    git(place, "merge", "--quiet", "-s", "ours", "-m", "Update", theirs)
    found = review()
    assert found["files"] == ["mine.txt", "notes.txt", "theirs.txt"] and "-theirs" in str(found["diff"])
    look_again()
    row = call("pool_list_reviews")["reviews"][0]
    assert (row["files"], row["added"], row["removed"]) == (3, 1, 2)
    assert taken(approve()).state == "merged"
    assert git(repository, "rev-parse", "HEAD^{tree}") == found["seen"], "a person saw that tree"


def test_what_another_branch_took_up_and_left_out_is_not_merged(make: Make, repository: Path) -> None:
    ben, smith = make("ben", good="good\n"), make("smith", mine="mine\n")
    commit(ben, good="good\n")
    call("pool_worktree_keep", agent_id="ben")
    git(smith, "add", "--all")
    git(smith, "commit", "--quiet", "-m", "Mine")
    git(smith, "merge", "--quiet", "-s", "ours", "-m", "Take up", git(ben, "rev-parse", "HEAD"))
    first, second = approve(), call("pool_worktree_queue", agent_id="ben")
    assert taken(first).state == "merged" and not (repository / "good.txt").exists()
    entry = WorktreeMerge.objects.get(pk=second["merge_id"])
    assert (entry.state, entry.cause, entry.needs_person) == ("returned", "refused", True)
    assert "would change nothing in main any more" in entry.why and "git diff main nexus/ben" in entry.why
    assert "nothing to merge" in refused("pool_worktree_queue", agent_id="ben")["message"]


def test_a_file_of_another_type_shifts_no_names(
    committed: None, make: Make, repository: Path, browser: Browser
) -> None:
    place = make("smith", other="quoted\n")
    (place / "notes.txt").unlink()
    (place / "notes.txt").symlink_to("/etc/passwd")
    (place / "src" / "main.py").write_text("print(2)\n")
    found = review()
    assert [(each["path"], each["status"]) for each in found["changes"]] == [  # type: ignore[attr-defined]
        ("notes.txt", "T"),
        ("other.txt", "A"),
        ("src/main.py", "M"),
    ]
    assert "+quoted" in comment(path="other.txt", line=1)["quote"]
    assert "+print(2)" in comment(path="src/main.py", line=1)["quote"]
    assert "+/etc/passwd" in comment(path="notes.txt", line=1)["quote"]
    assert "-one" in comment(path="notes.txt", line=1, side="old")["quote"]
    page = browser.get(f"/admin/review/{PoolWorktree.objects.get().agent_id}/").content.decode()
    files = words(page[page.index('id="changes"') :])
    assert "notes.txt another type symbolic link" in files and "src/main.py +1 −1" in files


def test_attributes_hide_neither_lines_nor_their_numbers(make: Make) -> None:
    place = make("smith", many="x\n" * 500)
    (place / ".gitattributes").write_text("* -diff\n")
    look_again()
    row = call("pool_list_reviews")["reviews"][0]
    assert (row["files"], row["added"], row["removed"]) == (2, 501, 0)
    assert "+* -diff" in str(review()["diff"]) and review()["unshown"] == []


def test_what_is_not_shown_is_asked_for_by_name(make: Make, repository: Path) -> None:
    place = make("smith", a="word\n" * 50_000, small="1\n")
    (place / "src" / "run.sh").write_bytes(b"#!/bin/sh\n#\0\ncurl evil\n")
    (place / "src" / "more.sh").write_text("curl evil\n")
    seen, left = review()["seen"], ["a.txt", "small.txt", "src/more.sh", "src/run.sh"]
    assert review()["unshown"] == left and review()["truncated"]
    for unseen in ([], ["a.txt", "src"], ["a.txt", "src/", "small"]):
        error = refused("pool_approve_work", agent_id="smith", seen=seen, unseen=unseen)
        assert error["code"] == "WORKTREE_REFUSED" and error["details"]["field"] == "unseen", error
    assert error["details"]["names"] == ["small.txt"] and not WorktreeMerge.objects.exists()
    assert taken(approve(unseen=["a.txt", "src/", "small.txt"])).state == "merged"


def test_the_page_and_the_command_ask_for_what_they_do_not_show(
    committed: None, make: Make, repository: Path, browser: Browser
) -> None:
    place = make("smith", long="x\n" * 1_500, wide="y" * 600 + "\n", small="1\n")
    (place / "data.bin").write_bytes(b"\0\1")
    address = f"/admin/review/{PoolWorktree.objects.get().agent_id}/"
    page = browser.get(address).content.decode()
    boxes = [part.split('"')[0] for part in page.split('name="unseen" value="')[1:]]
    assert [json.loads(box.replace("&quot;", '"')) for box in boxes] == ["data.bin", "long.txt", "wide.txt"]
    seen = page.split('name="seen" value="')[1].split('"')[0]
    refusal = shown(browser.post(f"{address}approve/", {"seen": seen}, follow=True))
    assert "does not show all of 'data.bin'" in refusal
    assert browser.post(f"{address}approve/", {"seen": seen, "unseen": "data.bin"}).status_code == 400
    out = StringIO()
    with pytest.raises(SystemExit, match="0"):
        call_command("review", "approve", "smith", "--seen", seen, "--unseen", "data.bin", stdout=out)
    call("pool_withdraw_merge", merge_id=WorktreeMerge.objects.get().pk)
    ticked = {"seen": seen, "unseen": [json.dumps(name) for name in ("data.bin", "long.txt", "wide.txt")]}
    assert "It waits in the merge queue" in shown(browser.post(f"{address}approve/", ticked, follow=True))


def test_the_same_lines_between_the_same_lines_go_on_without_a_person(make: Make, repository: Path) -> None:
    commit(repository, many="".join(LINES))
    place = make("smith")
    (place / "many.txt").write_text("".join([*LINES[:20], "mine\n", *LINES[20:]]))
    entry = approve()
    commit(repository, many="".join(["theirs\n", *LINES]), other="x\n")
    assert taken(entry).state == "merged"
    assert (repository / "many.txt").read_text() == "".join(["theirs\n", *LINES[:20], "mine\n", *LINES[20:]])


def test_a_merge_that_is_another_than_was_approved_is_looked_at_again(make: Make, repository: Path) -> None:
    commit(repository, many="".join(LINES))
    place = make("smith")
    (place / "many.txt").write_text("".join([*LINES[:20], "mine\n", *LINES[20:]]))
    look_again()
    entry, seen = approve(), review()["seen"]
    assert waiting() == []
    commit(repository, many="".join([*LINES[:17], "theirs\n", *LINES[18:]]))
    before = git(repository, "rev-parse", "HEAD")
    assert (taken(entry).state, entry.cause, entry.needs_person) == ("returned", "changed", False)
    assert "look at it again" in entry.why and git(repository, "rev-parse", "HEAD") == before
    assert not Turn.objects.filter(source="lane").exists(), "its agent can do nothing about it"
    work_once(LOOK)
    assert waiting() == ["smith"]
    assert "changed since" in refused("pool_approve_work", agent_id="smith", seen=seen)["message"]
    seen = review()["seen"]
    assert taken(approve()).state == "merged" and git(repository, "rev-parse", "HEAD^{tree}") == seen


def test_what_conflicts_is_shown_alone_and_is_not_approved(
    committed: None, make: Make, repository: Path, browser: Browser
) -> None:
    make("smith", notes="mine\n")
    theirs = commit(repository, notes="theirs\n", other="x\n")
    found = review()
    assert found["files"] == ["notes.txt"] and "-one\n+mine" in str(found["diff"])
    assert str(found["why_not"]).endswith("changed the same places of 'notes.txt'")
    assert "merge queue" in refused("pool_approve_work", agent_id="smith", seen=found["seen"])["message"]
    row = PoolWorktree.objects.get()
    page = shown(browser.get(f"/admin/review/{row.agent_id}/"))
    assert "It cannot be merged" in page and 'id="approve"' not in page
    queued = {"do": f"pool_worktree_queue {row.pk}", "next": "/admin/control/worktreemerge/"}
    assert "was put into the merge queue" in shown(browser.post("/admin/act/", queued, follow=True))
    assert taken(WorktreeMerge.objects.get()).cause == "conflict" and theirs == git(repository, "rev-parse", "HEAD")
    git(repository, "reset", "--quiet", "--hard", "HEAD~1")
    git(repository, "commit", "--quiet", "--amend", "--allow-empty", "-m", "Rewritten")
    assert "was rewritten" in str(review()["why_not"])


def test_the_review_merges_as_the_lane_does(make: Make, repository: Path) -> None:
    (repository / ".gitattributes").write_text("notes.txt merge=union\n")
    commit(repository, notes="one\n")
    make("smith", notes="one\nmine\n")
    commit(repository, notes="one\ntheirs\n")
    seen = review()["seen"]
    assert taken(approve()).state == "merged" and git(repository, "rev-parse", "HEAD^{tree}") == seen
    assert (repository / "notes.txt").read_text() == "one\ntheirs\nmine\n"
