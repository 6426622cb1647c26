"""The merge queue: approved work is merged, checked and taken in turn, or comes back; over real git."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command
from django.test import Client as Browser

from coordination.log.sentences import lines
from coordination.models import Event
from inbox.monitoring import Picture
from nexus.control.attention import KINDS
from nexus.control.models import MergeState, PoolWorktree, Turn, WorktreeMerge
from nexus.control.runners import sandbox
from nexus.control.worktrees import lane, trees, verification
from nexus.control.worktrees.lane import LANE_WORK, Claimed
from nexus.core import progress
from nexus.core.background_work import work_forever, work_once
from nexus.core.clock import now
from nexus.core.config import CoreSettings
from nexus.core.waiting import READERS, in_thread
from tests.conftest import does as do
from tests.control.test_worktrees import does, pool, repository, told
from tests.git import git
from tests.pages import shown

__all__ = ["pool", "repository"]

Make = Callable[..., Path]


@pytest.fixture
def make(db: None, repository: Path) -> Make:
    """Creates an agent with a worktree, and writes files there."""

    def make(agent_id: str, **files: str) -> Path:
        assert does("pool_create_agent", agent_id=agent_id, cwd=str(repository), worktree=True)["ok"]
        place = Path(PoolWorktree.objects.get(agent__agent_id=agent_id).path)
        for name, text in files.items():
            (place / f"{name}.txt").write_text(text)
        return place

    return make


def approve(repository: Path, **checks: str) -> None:
    """Give the project checks that an operator reviewed."""
    lines = [f"{name} = {json.dumps(run)}" for name, run in checks.items()]
    (repository / "nexus.toml").write_text("\n".join(["[checks]", *lines]))
    digest = do("checks_list", project_root=str(repository))["data"]["digest"]
    assert do("checks_approve", project_root=str(repository), digest=digest)["ok"]


def queue(agent_id: str) -> dict[str, Any]:
    answer = does("pool_worktree_queue", agent_id=agent_id)
    assert answer["ok"], answer
    return dict(answer["data"])


def refused(name: str = "pool_worktree_queue", **arguments: Any) -> str:
    return str(does(name, **arguments)["error"]["message"])


def ended(merge: dict[str, Any]) -> WorktreeMerge:
    work_once(LANE_WORK)
    return WorktreeMerge.objects.get(pk=merge["merge_id"])


def needing(name: str = "merge-lane") -> int:
    [kind] = [kind for kind in KINDS if kind.name == name]
    return kind.find(Picture(now()), 5).count


def test_it_takes_work_in_turn_as_it_was_queued(make: Make, repository: Path) -> None:
    places = [make(name, **{name: f"{name}\n"}) for name in ("one", "two", "three")]
    merges = [queue(name) for name in ("two", "one", "three")]
    (places[0] / "late.txt").write_text("not approved\n")
    assert [row["state"] for row in does("pool_list_merges")["data"]["merges"]] == ["waiting"] * 3
    work_once(LANE_WORK)
    assert [ended(merge).state for merge in merges] == [MergeState.MERGED] * 3
    subjects = git(repository, "log", "--first-parent", "--format=%s").split("\n")
    assert subjects == [f"Merge nexus/{name}, the work of {name}" for name in ("three", "one", "two")] + ["Begin"]
    assert git(repository, "status", "--porcelain") == ""
    assert (repository / "one.txt").exists() and not (repository / "late.txt").exists()
    assert told("worktree.queued", "worktree.merged") == ["worktree.queued"] * 3 + ["worktree.merged"] * 3
    [line, *_] = lines(list(Event.objects.filter(type="worktree.queued")))
    assert "".join(part.text for part in line.parts).endswith("nexus/two of two into the merge queue of main")
    assert len(does("pool_list_merges", which="merged")["data"]["merges"]) == 3


def test_what_waits_stays_as_it_was_approved_whatever_comes_after_it(make: Make, repository: Path) -> None:
    place = make("smith", mine="1\n")
    merge = queue("smith")
    (place / "late.txt").write_text("not approved\n")
    for verb in ("diff", "keep"):
        assert does(f"pool_worktree_{verb}", agent_id="smith")["ok"]
    git(repository, "reflog", "expire", "--expire=now", "--all")
    git(repository, "gc", "--quiet", "--prune=now")
    assert (ended(merge).state, ended(merge).result) == (MergeState.MERGED, git(repository, "rev-parse", "HEAD"))
    assert (repository / "mine.txt").exists() and not (repository / "late.txt").exists()


def test_a_conflict_goes_back_with_whose_work_it_is_and_the_next_goes_on(make: Make, repository: Path) -> None:
    (repository / "many.txt").write_text("".join(f"{n}\n" for n in range(30)))
    git(repository, "add", ".")
    git(repository, "commit", "--quiet", "-m", "Many")
    first = make("first", notes="first\n")
    git(first, "commit", "--quiet", "--all", "-m", "Write first")
    smith = make("smith", notes="smith\n")
    make("third", other="third\n")
    merges = [queue(name) for name in ("first", "smith", "third")]
    states = [ended(merge).state for merge in merges]
    assert states == [MergeState.MERGED, MergeState.RETURNED, MergeState.MERGED]
    entry = WorktreeMerge.objects.get(pk=merges[1]["merge_id"])
    [conflict] = entry.conflicts
    assert entry.cause == "conflict" and conflict["file"] == "notes.txt"
    assert "first\n=======\nsmith\n" in conflict["hunk"]
    assert any("Ann: Write first" in line for line in conflict["theirs"])
    turn = Turn.objects.get(agent__agent_id="smith")
    assert "| =======" in turn.content and "Ann: Write first" in turn.content and turn.source == "lane"
    assert (smith / "notes.txt").read_text() == "smith\n" and (repository / "notes.txt").read_text() == "first\n"
    assert needing() == 0, "its agent has it"
    [theirs] = re.findall(r"`git merge (\w+)`", turn.content)
    Turn.objects.all().delete()
    assert ended(queue("smith")).state == MergeState.RETURNED
    assert needing() == 1, "it came back twice"
    Turn.objects.all().delete()
    git(smith, "merge", "--quiet", "-s", "ours", "-m", "Yield", theirs)
    assert ended(queue("smith")).state == MergeState.MERGED
    assert needing() == 0


def test_many_openings_of_a_conflict_take_no_minutes(make: Make, repository: Path) -> None:
    openings = "<<<<<<< x\n" * 40_000
    make("first", notes=f"first\n{openings}")
    make("smith", notes=f"smith\n{openings}")
    queue("first")
    assert ended(queue("smith")).conflicts[0]["hunk"].startswith("<<<<<<< ")


@pytest.mark.usefixtures("runs_sandbox")
def test_reviewed_checks_run_on_the_merge_and_what_fails_comes_back(make: Make, repository: Path) -> None:
    approve(repository, fit="ls *.txt; touch made; test ! -e first.txt || test ! -e second.txt")
    make("first", first="1\n")
    place = make("second", second="2\n")
    (place / "nexus.toml").write_text("[checks]\nfit = 'true'\n")  # what the work says of checks does not count
    merges = [queue(name) for name in ("first", "second")]
    first, second = [ended(merge) for merge in merges]
    assert (first.state, second.state, second.cause) == (MergeState.MERGED, MergeState.RETURNED, "checks")
    said = Turn.objects.get(agent__agent_id="second").content
    assert "| check:fit: exit code 1\n| first.txt\n" in said and "| second.txt" in said
    assert not list((CoreSettings.current().home / trees.SCRATCH).iterdir())
    assert not (repository / "second.txt").exists() and not (repository / "made").exists()


@pytest.mark.usefixtures("runs_sandbox")
@pytest.mark.parametrize("was_approved", [False, True], ids=["new", "changed"])
def test_checks_that_nobody_approved_hold_the_merge(make: Make, repository: Path, was_approved: bool) -> None:
    if was_approved:
        approve(repository, fit="true")
    (repository / "nexus.toml").write_text('[checks]\nfit = "test -e first.txt"\n')
    make("first", first="1\n")
    merge = queue("first")
    entry = ended(merge)
    assert entry.state == MergeState.WAITING and not (repository / "first.txt").exists()
    fault = "others than olga approved" if was_approved else "not approved"
    assert f"{fault} (fit)" in entry.why and f"approve --project {repository}" in entry.why
    assert (needing("merge-held"), needing()) == (1, 0)
    digest = do("checks_list", project_root=str(repository))["data"]["digest"]
    assert do("checks_approve", project_root=str(repository), digest=digest)["ok"]
    entry = ended(merge)
    assert (entry.state, entry.why, needing("merge-held")) == (MergeState.MERGED, "", 0)


@pytest.mark.usefixtures("runs_sandbox")
def test_a_held_merge_can_be_withdrawn(make: Make, repository: Path) -> None:
    (repository / "nexus.toml").write_text("[checks")
    make("first", first="1\n")
    merge = queue("first")
    assert "is not TOML" in ended(merge).why
    withdrawn = does("pool_withdraw_merge", merge_id=merge["merge_id"])["data"]
    assert (withdrawn["needs_person"], needing("merge-held")) == (False, 0)


@pytest.mark.usefixtures("runs_sandbox")
@pytest.mark.parametrize(
    ("content", "words"),
    [
        (None, "has no readable file nexus.toml"),
        ("[other]\n", "has no checks. olga approved"),
        ("[checks]\n", "olga approved a nexus.toml without checks."),
    ],
)
def test_a_merge_without_checks_says_so_and_who_allowed_it(
    make: Make, repository: Path, content: str | None, words: str
) -> None:
    if content == "[checks]\n":
        approve(repository)
    elif content:
        (repository / "nexus.toml").write_text(content)
    make("first", first="1\n")
    entry = ended(queue("first"))
    assert entry.state == MergeState.MERGED and entry.why.startswith("Nothing was checked: ") and words in entry.why
    [line] = lines(list(Event.objects.filter(type="worktree.merged")))
    assert "Nothing was checked: " in "".join(part.text for part in line.parts)


@pytest.mark.parametrize("state", [MergeState.RUNNING, MergeState.WAITING], ids=["alone", "in a batch, formerly"])
def test_a_hub_that_dies_after_it_took_work_is_followed_by_one_that_records_it(
    make: Make, repository: Path, state: MergeState
) -> None:
    make("smith", mine="1\n")
    merge = queue("smith")
    [name] = LANE_WORK.queues()
    item = LANE_WORK.claim(name)
    assert item is not None and LANE_WORK.claim(name) is None, "another hub does not begin it, too"
    outcome = LANE_WORK.act(item)
    head = git(repository, "rev-parse", "HEAD")
    assert (repository / "mine.txt").exists()
    rows = WorktreeMerge.objects.filter(pk=merge["merge_id"], state=MergeState.RUNNING)
    assert rows.update(state=state) == 1
    assert ended(merge).state == MergeState.MERGED
    LANE_WORK.settle(item, outcome)  # the first hub was only slow
    assert git(repository, "rev-parse", "HEAD") == head == WorktreeMerge.objects.get().result
    assert told("worktree.merged") == ["worktree.merged"]


@pytest.mark.usefixtures("runs_sandbox")
def test_it_waits_where_its_checks_cannot_run(make: Make, repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    approve(repository, fit="true")
    make("smith", mine="1\n")
    merge = queue("smith")
    works = sandbox.state()
    monkeypatch.setattr(sandbox, "state", lambda: replace(works, works=False, why="bubblewrap is not here"))
    for _ in range(3):
        item = LANE_WORK.claim(LANE_WORK.queues()[0])
        assert item is not None
        LANE_WORK.settle(item, LANE_WORK.act(item))
    waiting = WorktreeMerge.objects.get()
    assert waiting.state == MergeState.WAITING and "bubblewrap is not here" in waiting.why
    monkeypatch.undo()
    assert ended(merge).state == MergeState.MERGED


@pytest.mark.usefixtures("runs_sandbox")
def test_it_begins_anew_where_the_branch_moved_meanwhile(
    make: Make, repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    approve(repository, fit="true")
    make("smith", mine="1\n")
    runs: list[str] = []

    def moves(*given: Any) -> str:
        runs.append(tested(*given))
        if len(runs) < 3:
            git(repository, "commit", "--quiet", "--allow-empty", "-m", f"Theirs {len(runs)}")
        return runs[-1]

    tested = verification.failures
    monkeypatch.setattr(lane, "failures", moves)
    assert ended(queue("smith")).state == MergeState.MERGED
    assert runs == [""] * 3
    assert git(repository, "log", "--first-parent", "--format=%s").split("\n")[1:3] == ["Theirs 2", "Theirs 1"]


def test_a_hub_of_another_home_leaves_alone_what_is_held(make: Make, tmp_path: Path) -> None:
    make("smith", mine="1\n")
    merge = queue("smith")
    item = LANE_WORK.claim(LANE_WORK.queues()[0])
    assert item is not None
    item.lock.close()
    WorktreeMerge.objects.update(held_by="elsewhere:/home")
    assert ended(merge).state == MergeState.RUNNING
    WorktreeMerge.objects.update(held_until=now())
    assert ended(merge).state == MergeState.MERGED
    late = Claimed(item.entry, (tmp_path / "lock").open("ab"))
    LANE_WORK.settle(late, LANE_WORK.act(late))
    assert told("worktree.merged") == ["worktree.merged"]


def test_a_branch_that_nobody_has_checked_out_moves_by_itself(make: Make, repository: Path, tmp_path: Path) -> None:
    make("one", one="1\n")
    make("two", two="2\n")
    merges = [queue("one"), queue("two")]
    git(repository, "checkout", "--quiet", "-b", "feature")
    assert ended(merges[0]).state == MergeState.MERGED
    assert git(repository, "show", "main:two.txt") == "2" and not (repository / "one.txt").exists()
    assert git(repository, "rev-parse", "feature") != git(repository, "rev-parse", "main")
    git(repository, "checkout", "--quiet", "main")
    make("three", three="3\n")
    merge = queue("three")
    git(repository, "checkout", "--quiet", "feature")
    git(repository, "worktree", "add", "--quiet", str(tmp_path / "side"), "main")
    assert "is checked out at" in ended(merge).why
    assert git(tmp_path / "side", "status", "--porcelain") == ""


def test_it_overwrites_nothing_in_the_peoples_own_copy(make: Make, repository: Path) -> None:
    make("smith", notes="mine\n", new="new\n")
    make("other", other="other\n")
    (repository / "notes.txt").write_text("not committed\n")
    (repository / "new.txt").write_text("not tracked\n")
    merges = [queue("smith"), queue("other")]
    entry = ended(merges[0])
    assert (entry.state, entry.cause, entry.needs_person) == (MergeState.RETURNED, "refused", True)
    assert (repository / "notes.txt").read_text() == "not committed\n"
    assert (repository / "new.txt").read_text() == "not tracked\n"
    assert ended(merges[1]).state == MergeState.MERGED


def test_what_was_removed_by_a_rewrite_is_not_brought_back(make: Make, repository: Path) -> None:
    (repository / "secret.txt").write_text("secret\n")
    git(repository, "add", ".")
    git(repository, "commit", "--quiet", "-m", "Secret")
    make("smith", mine="1\n")
    merge = queue("smith")
    git(repository, "reset", "--quiet", "--hard", "HEAD~1")
    git(repository, "commit", "--quiet", "--allow-empty", "-m", "Rewritten")
    entry = ended(merge)
    assert entry.state == MergeState.RETURNED and "was rewritten" in entry.why
    assert not (repository / "secret.txt").exists()
    assert git(repository, "show", "nexus/smith:mine.txt") == "1"


def test_strange_conflicts_come_back_by_name(make: Make, repository: Path, tmp_path: Path) -> None:
    strange = "a\nb \u2028c.txt"
    for name in (strange, "image.bin", "gone.txt"):
        (repository / name).write_bytes(b"\0begin")
    git(repository, "init", "--quiet", str(tmp_path / "inner"))
    git(tmp_path / "inner", "commit", "--quiet", "--allow-empty", "-m", "Inner")
    first = git(tmp_path / "inner", "rev-parse", "HEAD")
    git(repository, "update-index", "--add", "--cacheinfo", f"160000,{first},module")
    (repository / "module").mkdir()
    git(repository, "add", strange, "image.bin", "gone.txt")
    git(repository, "commit", "--quiet", "-m", "Strange")
    place = make("smith")
    for side, root in ((b"\0mine", place), (b"\0theirs", repository)):
        (root / strange).write_bytes(side)
        (root / "image.bin").write_bytes(side)
        git(root, "add", strange, "image.bin")
        inner = f"160000,{(b'1' if root == place else b'2').decode() * 40},module"
        git(root, "update-index", "--cacheinfo", inner)
    (place / "gone.txt").unlink()
    (repository / "gone.txt").write_text("kept\n")
    git(place, "add", "gone.txt")
    git(repository, "add", "gone.txt")
    git(place, "commit", "--quiet", "-m", "Mine")
    git(repository, "commit", "--quiet", "-m", "Theirs")
    before = git(repository, "rev-parse", "HEAD")
    entry = ended(queue("smith"))
    assert entry.cause == "conflict", entry.why
    assert {conflict["file"] for conflict in entry.conflicts} >= {strange, "image.bin", "gone.txt"}
    assert git(repository, "rev-parse", "HEAD") == before
    assert "Theirs" in Turn.objects.get().content


def test_it_refuses_what_cannot_wait(make: Make, repository: Path) -> None:
    make("smith")
    assert "nothing to merge" in refused(agent_id="smith")
    place = Path(PoolWorktree.objects.get().path)
    (place / "new.txt").touch()
    git(repository, "checkout", "--quiet", "--detach")
    assert "is on no branch" in refused(agent_id="smith")
    git(repository, "checkout", "--quiet", "-b", "side")
    merge = queue("smith")
    assert "already" in refused(agent_id="smith")
    does("pool_destroy_agent", agent_id="smith")
    assert "withdraw it there first" in refused("pool_worktree_discard", agent_id="smith", changes_too=True)
    git(repository, "checkout", "--quiet", "main")
    git(repository, "branch", "--quiet", "-D", "side")
    assert "no branch side any more" in ended(merge).why
    assert needing() == 1
    assert refused("pool_withdraw_merge", merge_id=merge["merge_id"]).endswith("is returned.")
    assert does("pool_withdraw_merge", merge_id="merge_0")["error"]["code"] == "NOT_FOUND"
    merge = queue("smith")
    assert needing() == 0
    assert does("pool_withdraw_merge", merge_id=merge["merge_id"])["data"]["state"] == "withdrawn"
    assert LANE_WORK.queues() == []
    assert does("pool_worktree_discard", agent_id="smith", changes_too=True)["ok"]


def test_work_whose_repository_is_away_waits(make: Make, repository: Path, tmp_path: Path) -> None:
    make("smith", mine="1\n")
    merge = queue("smith")
    repository.rename(tmp_path / "away")
    assert ended(merge).state == MergeState.WAITING
    (tmp_path / "away").rename(repository)
    assert ended(merge).state == MergeState.MERGED


def test_pages_and_the_command_show_it(
    committed: None, make: Make, repository: Path, browser: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "QUIET_SECONDS", 0.001)
    place = make("smith", notes="<b>mine</b>\n")
    make("other", notes="theirs\n")
    row = PoolWorktree.objects.get(agent__agent_id="other")
    assert "Put into the merge queue" in shown(browser.get(f"/admin/review/{row.agent.pk}/"))
    page = shown(
        browser.post(
            "/admin/act/", {"do": f"pool_worktree_queue {row.pk}", "next": "/admin/control/worktreemerge/"}, follow=True
        )
    )
    assert "was put into the merge queue" in page and "nexus/other" in page and "waiting" in page
    merge = WorktreeMerge.objects.get()
    done = {"do": f"pool_withdraw_merge {merge.pk}", "next": "/admin/control/worktreemerge/"}
    assert "withdrawn" in shown(browser.post("/admin/act/", done, follow=True))
    ended(queue("other"))
    ended(queue("smith"))
    page = browser.get("/admin/control/worktreemerge/").text
    assert "conflict" in page and "merged" in page
    returned = WorktreeMerge.objects.get(state=MergeState.RETURNED)
    page = browser.get(f"/admin/control/worktreemerge/{returned.pk}/change/").text
    assert "&lt;b&gt;mine" in page and "<b>mine" not in page
    assert "nexus/other" in shown(browser.get("/admin/control/poolworktree/?q=other"))
    out = StringIO()
    with pytest.raises(SystemExit, match="0"):
        call_command("lane", "list", "--which", "returned", stdout=out)
    assert "smith" in out.getvalue() and "main" in out.getvalue()
    (place / "more.txt").touch()
    with pytest.raises(SystemExit, match="0"):
        call_command("lane", "add", "smith", stdout=out, stderr=(said := StringIO()))
    assert WorktreeMerge.objects.open().get().pk in out.getvalue()
    assert "pool worktree queue: at work, 0 s so far" in said.getvalue()


@pytest.mark.usefixtures("runs_sandbox")
def test_an_entry_that_fails_twice_comes_back_and_the_next_goes_on(
    committed: None, make: Make, repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    approve(repository, fit="true")
    merges = []
    for name in ("smith", "other"):
        make(name, **{name: "1\n"})
        merges.append(queue(name))
    checks = verification.failures

    def failures(known: Any, tree: trees.Tree, alive: Any) -> str:
        if Path(tree.path, "smith.txt").exists() and not Path(tree.path, "other.txt").exists():
            raise RecursionError
        return checks(known, tree, alive)

    monkeypatch.setattr(lane, "failures", failures)
    monkeypatch.setattr(LANE_WORK, "tick_seconds", 0.01)

    async def work() -> None:
        async with asyncio.timeout(60):
            task = asyncio.create_task(work_forever(LANE_WORK))
            while await in_thread(READERS, WorktreeMerge.objects.open().exists):
                await asyncio.sleep(0.01)
            task.cancel()

    asyncio.run(work())
    first, second = (WorktreeMerge.objects.get(pk=merge["merge_id"]) for merge in merges)
    assert (first.state, first.cause, first.needs_person) == (MergeState.RETURNED, "refused", True)
    assert "failed twice" in first.why and "RecursionError" in first.why
    assert second.state == MergeState.MERGED
