"""The review of finished work: comments are sent as one message, and approval is of what was seen. Git is played:
test_reviews_of_git.py has the same over the real one."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from functools import partial
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command
from django.test import Client
from django.urls import reverse
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from coordination import comments
from coordination.models import Workspace
from handoffs.attention import KINDS as HANDOFF_KINDS
from inbox.monitoring import Picture
from nexus.control.agents import turns
from nexus.control.agents.turns import Ended
from nexus.control.attention import KINDS
from nexus.control.models import DiffSide, PoolAgent, PoolWorktree, ReviewComment, Turn, TurnStatus
from nexus.control.review import reviews
from nexus.control.review.reviews import LOOK, LineRange
from nexus.control.runners.git import GitFailed
from nexus.control.worktrees import trees
from nexus.core.background_work import work_once
from nexus.core.clock import now
from nexus.core.operations import dispatch
from nexus.core.operations.caller import Caller
from nexus.planning.attention import KINDS as TASK_KINDS
from nexus.planning.models import Task
from nexus.planning.toolset import PLANNING
from tests.conftest import OPERATOR, at_once, examples
from tests.conftest import does as do
from tests.control.played_git import played_git, repository
from tests.control.test_worktrees import does, pool, told
from tests.inbox.conftest import Clock, clock
from tests.pages import queries, shown
from tests.web.test_difference import INDEX, changed

__all__ = ["clock", "played_git", "pool", "repository"]

Make = Callable[..., Path]


def works(agent_id: str, says: str = "It is done.") -> None:
    """Let the agent take its next turn to its end."""
    sent = Turn.objects.filter(agent__agent_id=agent_id, status=TurnStatus.QUEUED).order_by("pk").first()
    if sent is None:
        assert does("pool_send", agent_id=agent_id, content="Do it.", timeout_seconds=0)["ok"]
        sent = Turn.objects.get(agent__agent_id=agent_id, status=TurnStatus.QUEUED)
    turn = turns.claim(sent.pk)
    assert turn is not None and turns.settle_turn(turn, Ended(TurnStatus.DONE, answer=says))


@pytest.fixture
def make(db: None, repository: Path) -> Make:
    """Creates an agent with a worktree, lets it write files there, and finish a turn."""

    def make(agent_id: str, **files: str) -> Path:
        assert does("pool_create_agent", agent_id=agent_id, cwd=str(repository), worktree=True)["ok"]
        place = Path(PoolWorktree.objects.get(agent__agent_id=agent_id).path)
        for name, text in files.items():
            (place / f"{name}.txt").write_text(text)
        works(agent_id)
        work_once(LOOK)
        return place

    return make


def offer(repository: Path, title: str, to: str = "smith", **more: Any) -> str:
    """Create a handoff, and return its id."""
    do("workspace_resolve", project_root=str(repository))
    for name in ("lead", to):
        do("agent_register", agent_id=name)
    work = {"target": {"strategy": "direct", "agent_id": to}, "visibility": "public", "payload": title, **more}
    answer = do("handoff_create", project_root=str(repository), from_agent_id="lead", **work)
    assert answer["ok"], answer
    return str(answer["data"]["handoff_id"])


def call(name: str, **arguments: Any) -> dict[str, Any]:
    answer = does(name, **arguments)
    assert answer["ok"], answer
    return dict(answer["data"])


def refused(name: str, caller: Caller = OPERATOR, **arguments: Any) -> dict[str, Any]:
    answer = does(name, caller, **arguments)
    assert not answer["ok"], answer
    return dict(answer["error"])


def waiting() -> list[str]:
    """The agents whose worktrees wait for review; a person is told of as many."""
    rows = [row for row in call("pool_list_reviews")["reviews"] if "worktree_id" in row]
    assert counted("reviews") == len(rows)
    return [row["agent_id"] for row in rows]


def counted(name: str) -> int:
    [kind] = [kind for kind in KINDS if kind.name == name]
    return kind.find(Picture(now()), 5).count


def handed_in() -> int:
    """The submitted handoffs that a person is told of."""
    return sum(kind.find(Picture(now()), 5).count for kind in HANDOFF_KINDS if kind.name == "submitted")


def as_agent(agent_id: str) -> Caller:
    agent = PoolAgent.objects.get(agent_id=agent_id, ended_at=None)
    return Caller("pool", agent_id=agent_id, connection=f"pool:{agent.pk}")


def comment(agent_id: str = "smith", text: str = "Why?", **more: Any) -> dict[str, Any]:
    return call("pool_add_comment", agent_id=agent_id, text=text, **more)


def test_work_waits_once_its_agent_is_at_rest_and_it_holds_changes(make: Make) -> None:
    place = make("smith", notes="one\ntwo\n")
    make("idle")
    assert waiting() == ["smith"] and told("worktree.waits") == ["worktree.waits"], "pages learn of it"
    row = call("pool_list_reviews")["reviews"][0]
    assert (row["files"], row["added"], row["removed"], row["drafts"]) == (1, 1, 0, 0)
    does("pool_send", agent_id="smith", content="More.", timeout_seconds=0)
    assert waiting() == [], "a turn is about to change it"
    (place / "notes.txt").write_text("one\n")
    works("smith")
    work_once(LOOK)
    assert waiting() == [], "it took its change back"
    does("pool_destroy_agent", agent_id="idle")
    work_once(LOOK)
    assert waiting() == [] and counted("worktrees") == 0, "nothing is in it"


def test_work_that_nobody_can_read_needs_a_person_once_its_agent_has_ended(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unreadable(tree: trees.Tree) -> trees.Survey:
        raise GitFailed("its .git is not its own directory any more")

    monkeypatch.setattr(trees, "survey", unreadable)
    make("smith", notes="two\n")
    assert waiting() == [] and counted("worktrees") == 0
    does("pool_destroy_agent", agent_id="smith")
    assert counted("worktrees") == 1


def test_work_of_an_agent_that_ended_is_counted_once(make: Make) -> None:
    make("smith", notes="two\n")
    does("pool_destroy_agent", agent_id="smith")
    assert waiting() == ["smith"] and counted("worktrees") == 0


def test_planned_tasks_that_wait_count_as_handoffs_do(make: Make, repository: Path) -> None:
    for name in ("old", "new"):
        make(name, **{name: "1\n"})
    for number, title in enumerate(("First", "Second", "Third")):
        plans("task_add", repository, title=title, context="c", deps=[number] if number else [], owner_agent_id="new")
    plans("task_update", repository, id=1, status="in_progress")
    rows = call("pool_list_reviews")["reviews"]
    assert [(row["agent_id"], row["unblocks"]) for row in rows] == [("new", 2), ("old", 0)]
    plans("task_update", repository, id=1, status="completed")
    assert {row["unblocks"] for row in call("pool_list_reviews")["reviews"]} == {0}


def plans(name: str, root: Path, /, caller: Caller = OPERATOR, **given: Any) -> None:
    answer = dispatch.run(PLANNING, caller, name, {"project_root": str(root), **given})
    assert answer["ok"], answer


def submit(root: Path, title: str, by: str = "ana", **more: Any) -> Task:
    """Add a task that an operator verifies, and let an agent submit it."""
    plans("task_add", root, title=title, context="Why.", **{"verifier": "operator", **more})
    task = Task.objects.latest("created_at", "number")
    for status in ("in_progress", "completed"):
        plans("task_update", root, Caller("test", agent_id=by), id=task.number, status=status)
    return task


def tasks_waiting() -> list[str]:
    """The submitted tasks on the desk; a person is told of as many."""
    titles = [row["title"] for row in call("pool_list_reviews")["reviews"] if "title" in row]
    [kind] = [kind for kind in TASK_KINDS if kind.name == "submitted-tasks"]
    assert kind.find(Picture(now()), 5).count == len(titles)
    return titles


@pytest.fixture
def other(tmp_path: Path) -> Path:
    """A project without a pool."""
    root = tmp_path / "other"
    root.mkdir()
    for name in ("ana", "vera"):
        do("agent_register", agent_id=name)
    return root.resolve()


def test_submitted_tasks_wait_among_worktrees_by_what_waits_for_them(
    make: Make, repository: Path, other: Path, browser: Client
) -> None:
    task = submit(other, "Write")
    submit(other, "Alone")
    for needed in (1, 3):
        plans("task_add", other, title="Later", context="c", deps=[needed])
    for name in ("old", "new"):
        make(name, **{name: "1\n"})
    handoff = offer(repository, "Build", to="new")
    assert do("handoff_claim", project_root=str(repository), handoff_id=handoff, agent_id="new")["ok"]
    offer(repository, "Next", depends_on=[handoff])
    answer = call("pool_list_reviews")
    rows = answer["reviews"]
    assert [(row.get("title") or row["agent_id"], row["unblocks"]) for row in rows] == [
        ("Write", 2), ("new", 1), ("Alone", 0), ("old", 0),
    ]  # fmt: skip
    assert answer["count"] == 4 and len(call("pool_list_reviews", limit=1)["reviews"]) == 1
    assert rows[0] == {
        "project_root": str(other), "id": 1, "claim_epoch": task.claim_epoch + 1, "title": "Write", "agent_id": "ana",
        "why": "ana says that it is done", "unblocks": 2, "since": rows[0]["since"],
    }  # fmt: skip
    assert (counted("reviews"), tasks_waiting()) == (2, ["Write", "Alone"])
    page = shown(browser.get(reverse("admin:reviews")))
    assert f'href="/admin/planning/task/{task.pk}/change/"' in page and "2 wait for it" in page
    assert page.index("1. <bdi>Write") < page.index(">Build<") < page.index("2. <bdi>Alone") < page.index("nexus/old")
    plans("task_update", other, id=4, status="completed")
    assert call("pool_list_reviews", limit=1)["reviews"][0]["unblocks"] == 1
    plans("task_approve", other, id=1, claim_epoch=rows[0]["claim_epoch"])
    plans("task_send_back", other, id=2, reasons="It does not work.")
    assert tasks_waiting() == []


def test_a_task_that_an_agent_verifies_waits_for_that_agent_first(make: Make, other: Path, clock: Clock) -> None:
    submit(other, "Theirs", verifier={"agent_id": "vera"})
    submit(other, "Nobody's", verifier={"role": "judge"})
    submit(other, "Its own", verifier={"agent_id": "ana"})
    assert tasks_waiting() == ["Nobody's", "Its own"]
    clock.shift(timedelta(hours=2))
    assert tasks_waiting() == ["Theirs", "Nobody's", "Its own"]
    [row, *_] = call("pool_list_reviews")["reviews"]
    assert row["why"] == "ana says that it is done, and vera has not looked at it"


def test_a_task_whose_work_waits_in_a_worktree_is_counted_once(make: Make, repository: Path, other: Path) -> None:
    part = repository / "part"
    part.mkdir()
    make("smith", notes="two\n")
    assert waiting() == ["smith"]
    submit(repository, "Here", by="smith")
    submit(part, "In a part of it", by="smith")
    assert (waiting(), tasks_waiting()) == (["smith"], [])
    for root in (repository, part):
        there = Picture(now(), Workspace.objects.get(root_realpath=str(root)))
        found = [kind for kind in (*KINDS, *TASK_KINDS) if kind.name in ("reviews", "submitted-tasks")]
        assert [kind.find(there, 5).count for kind in found] == [1, 0], root
    submit(repository, "By another")
    submit(other, "Elsewhere", by="smith")
    assert tasks_waiting() == ["By another", "Elsewhere"]
    seen = call("pool_get_review", agent_id="smith")["seen"]
    call("pool_approve_work", agent_id="smith", seen=seen)
    assert (waiting(), counted("reviews")) == ([], 0)
    assert tasks_waiting() == ["Here", "In a part of it", "By another", "Elsewhere"]


def test_a_task_of_a_later_agent_of_that_name_is_no_work_of_the_worktree(
    make: Make, repository: Path, clock: Clock
) -> None:
    make("smith", notes="two\n")
    does("pool_destroy_agent", agent_id="smith")
    clock.shift(timedelta(minutes=1))
    submit(repository, "Another's", by="smith")
    assert (waiting(), tasks_waiting()) == (["smith"], ["Another's"])


def test_the_desk_asks_as_often_for_many_tasks_as_for_one(make: Make, tmp_path: Path, other: Path) -> None:
    make("smith", notes="two\n")
    submit(other, "First")
    once = queries(lambda: call("pool_list_reviews"))
    for number in range(4):
        root = tmp_path / str(number)
        root.mkdir()
        for title in ("One", "Two"):
            submit(root, title)
    assert queries(lambda: call("pool_list_reviews")) == once and len(tasks_waiting()) == 9


def test_what_agents_write_about_tasks_stays_words_and_short(make: Make, other: Path, browser: Client) -> None:
    """The task's owner may be any text, and a task that nobody began is its owner's."""
    title, owner = "<b>\u202eevil</b>" + "x" * 10_000, "<i>" + "o" * 10_000
    plans("task_add", other, title=title, context="c", verifier="operator", owner=owner)
    plans("task_update", other, id=1, status="completed")
    [row] = call("pool_list_reviews")["reviews"]
    assert (row["title"], len(row["agent_id"]), len(row["why"]) < 300) == (title[:200], 255, True)
    page = browser.get(reverse("admin:reviews")).content.decode()
    assert "&lt;b&gt;" in page and "<b>\u202e" not in page and "\u202e" not in page and "<i>o" not in page
    assert "x" * 200 not in page and "o" * 300 not in page


def test_comments_are_sent_as_one_message_with_the_lines_that_they_are_about(make: Make, repository: Path) -> None:
    place = make("smith", notes="one\n" + "".join(f"line {n}\n" for n in range(2, 30)), other="x\n")
    first = comment(text="Rename\rthis.", path="notes.txt", line=4, last_line=5)
    assert first["quote"].split("\n") == ["@@ -1 +1,29 @@", " one", *(f"+line {n}" for n in range(2, 9))]
    comment(text="All of this file.", path="other.txt")
    comment(text="And a test, please.")
    draft = comment(text="Never mind.")
    assert call("pool_remove_comment", comment_id=draft["comment_id"])["removed"]
    sent = call("pool_send_comments", agent_id="smith")
    assert (sent["sent"], sent["to"]) == (3, "smith")
    turn = Turn.objects.get(pk=sent["run_id"])
    assert turn.source == "review" and turn.status == TurnStatus.QUEUED
    assert (
        f"1. {first['comment_id']}, about 'notes.txt', lines 4 to 5\n| @@ -1 +1,29 @@\n|  one\n| +line 2"
        in turn.content
    )
    assert f"{first['author']}: Rename" in turn.content
    assert "about 'other.txt'\n" in turn.content and "about all of it\n" in turn.content
    assert "Never mind" not in turn.content and str(place) in turn.content
    assert refused("pool_send_comments", agent_id="smith")["code"] == "INVALID_TRANSITION"
    assert refused("pool_remove_comment", comment_id=first["comment_id"])["code"] == "INVALID_TRANSITION"
    assert waiting() == [], "its agent has it"
    works("smith")
    assert waiting() == ["smith"]


def test_an_agent_says_what_became_of_each_comment(make: Make) -> None:
    make("smith", notes="two\n")
    make("other", notes="two\n")
    done, declined, silent = (comment(text=text)["comment_id"] for text in "abc")
    early = refused("pool_review_answer", as_agent("smith"), comment_id=done, outcome="done")
    assert early["code"] == "NOT_FOUND", "it is a draft"
    call("pool_send_comments", agent_id="smith")
    answer = does("pool_review_answer", as_agent("smith"), comment_id=done, outcome="done", words="Renamed.")
    assert answer["data"]["outcome"] == "done"
    for caller in (as_agent("other"), OPERATOR):
        error = refused("pool_review_answer", caller, comment_id=declined, outcome="done")
        assert error["details"]["rule"] == "recipient"
    does("pool_review_answer", as_agent("smith"), comment_id=declined, outcome="declined", words="It is right.")
    found = {each["comment_id"]: each for each in call("pool_get_review", agent_id="smith")["comments"]}
    assert [(found[pk]["outcome"], found[pk]["words"]) for pk in (done, declined, silent)] == [
        ("done", "Renamed."),
        ("declined", "It is right."),
        (None, ""),
    ]


def test_agents_do_not_review(make: Make) -> None:
    make("smith", notes="two\n")
    more: dict[str, Any] = {"pool_approve_work": {"seen": "x"}, "pool_add_comment": {"text": "x"}}
    verbs = ("get_review", "send_comments", "abandon_work", "approve_work", "add_comment")
    for name in (f"pool_{verb}" for verb in verbs):
        assert refused(name, as_agent("smith"), agent_id="smith", **more.get(name, {}))["code"] == "NOT_OWNER"
    assert refused("pool_list_reviews", as_agent("smith"))["code"] == "NOT_OWNER"


def test_a_handoff_gets_its_verdict_with_the_review(make: Make, repository: Path) -> None:
    make("smith", notes="two\n")
    handoff_id = offer(repository, "Do it", verifier="operator")
    own = {"project_root": str(repository), "handoff_id": handoff_id, "agent_id": "smith"}
    do("handoff_claim", **own)
    do("handoff_complete", **own, result="Did it")
    assert waiting() == ["smith"] and handed_in() == 0, "it is counted once"
    review = call("pool_get_review", agent_id="smith")
    assert (review["handoff"]["status"], review["handoff"]["result"]) == ("SUBMITTED", "Did it")
    comment(text="Not yet")
    before = do("inbox_count", agent_id="smith")["data"]
    sent = call("pool_send_comments", agent_id="smith")
    status = do("handoff_get", **own)["data"]
    assert status["status"] == "CLAIMED"
    assert f"claim_epoch {status['claim_epoch']}" in Turn.objects.get(pk=sent["run_id"]).content
    assert do("inbox_count", agent_id="smith")["data"] == before, "one message alone"
    works("smith")
    do("handoff_complete", **own, claim_epoch=status["claim_epoch"], result="Now")
    seen = call("pool_get_review", agent_id="smith")["seen"]
    assert call("pool_approve_work", agent_id="smith", seen=seen)["accepted"] == handoff_id
    assert do("handoff_get", **own)["data"]["status"] == "COMPLETED"


def claimed(repository: Path) -> tuple[dict[str, str], int]:
    """A handoff that smith claimed, as smith names it, and the epoch of its claim."""
    handoff_id = offer(repository, "Do it", verifier="operator")
    own = {"project_root": str(repository), "handoff_id": handoff_id, "agent_id": "smith"}
    return own, do("handoff_claim", **own)["data"]["claim_epoch"]


def test_a_successor_gets_the_comments_of_an_agent_that_ended(make: Make) -> None:
    place = make("smith", notes="two\n")
    comment(text="Go on")
    does("pool_destroy_agent", agent_id="smith")
    assert "create one whose directory is" in refused("pool_send_comments", agent_id="smith")["message"]
    assert "worktree" not in call("pool_create_agent", agent_id="heir", cwd=str(place), preset="trusted")
    sent = call("pool_send_comments", agent_id="smith")
    assert sent["to"] == "heir" and "the work of smith" in Turn.objects.get(pk=sent["run_id"]).content


def test_of_two_that_send_at_once_one_sends(committed: None, make: Make) -> None:
    make("smith", notes="two\n")
    comment(text="Once")
    answers = at_once([partial(does, "pool_send_comments", agent_id="smith")] * 4)
    assert sorted(answer["ok"] for answer in answers) == [False, False, False, True]
    assert Turn.objects.filter(source="review").count() == 1


def test_a_comment_fits_the_diff_and_the_message(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    place = make("smith", notes="one\ntwo\n")
    strange = "a\r\nb \u2028| c.txt"
    (place / strange).write_text("1\n")
    asks = partial(refused, "pool_add_comment", agent_id="smith", text="x")
    assert asks(path="gone.txt")["details"]["field"] == "path"
    assert asks(path="notes.txt", line=7)["details"]["field"] == "line"
    assert asks(path="notes.txt", line=2, side="old")["details"]["field"] == "line"
    assert asks(path="notes.txt", line=2, last_line=1)["details"]["field"] == "last_line"
    assert asks(line=2)["details"]["field"] == "path"
    assert asks(path="notes.txt", last_line=1)["details"]["field"] == "line"
    assert asks(path="notes.txt", line=2**40)["code"] == "VALIDATION_ERROR"
    assert refused("pool_add_comment", agent_id="smith", text=" \n")["details"]["field"] == "text"
    assert refused("pool_add_comment", agent_id="smith", text="x" * 10_001)["code"] == "VALIDATION_ERROR"
    comment(path=strange, line=1, text="a\rb")
    monkeypatch.setattr(comments, "MOST_DRAFTS", 2)
    comment(text="é" * 10_000)
    assert refused("pool_add_comment", agent_id="smith", text="x")["code"] == "INVALID_TRANSITION"
    call("pool_send_comments", agent_id="smith")
    content = Turn.objects.get(source="review").content
    assert f"about {strange!r}, line 1\n| @@ -0,0 +1 @@\n| +1\n" in content


TEXTS = st.text(st.characters(codec="utf-8", exclude_characters="\n\0"), max_size=12)


@given(st.lists(st.tuples(st.sampled_from(" +-"), TEXTS), min_size=1, max_size=30), st.data())
@settings(suppress_health_check=[HealthCheck.too_slow], max_examples=examples(60))
def test_the_hunk_of_a_line_holds_it_whatever_the_lines_are(rows: list[tuple[str, str]], data: st.DataObject) -> None:
    lines = [sign + text for sign, text in rows]
    diff = "\n".join([f"diff --git a/x b/x\n{INDEX}--- a/x\n+++ b/x\n@@ -5,9 +7,9 @@ def f():", *lines, ""])
    shown = replace(trees.NOTHING, diff=diff, files=[changed("x")])
    index = data.draw(st.integers(0, len(rows) - 1))
    sign = rows[index][0]
    side = DiffSide.OLD if sign == "-" else DiffSide.NEW
    skipped = "+" if side == DiffSide.OLD else "-"
    number = (5 if side == DiffSide.OLD else 7) + sum(before != skipped for before, _ in rows[:index])
    quote = reviews.hunk(shown, LineRange("x", side, number, number)).split("\n")
    assert quote[0] == "@@ -5,9 +7,9 @@" and lines[index] in quote[1:] and len(quote) <= 8


def test_of_many_comments_the_newest_are_shown(make: Make, browser: Client) -> None:
    make("smith", notes="one\n")
    row = PoolWorktree.objects.select_related("agent").get()
    ReviewComment.objects.bulk_create(
        ReviewComment(comment_id=f"comment_{number:04d}", worktree=row, text=f"Text {number}.", author="olga",
                      written_at=now(), sent_at=now())
        for number in range(comments.MOST_SHOWN + 1)
    )  # fmt: skip
    data = call("pool_get_review", agent_id="smith")
    assert [each["text"] for each in data["comments"]] == [f"Text {n}." for n in range(1, comments.MOST_SHOWN + 1)]
    assert data["comments_left_off"] == 1
    page = shown(browser.get(reverse("admin:pool_review", args=[row.agent.pk])))
    assert "1 older comment is not shown." in page
    assert "Text 0." not in page and "Text 1." in page
    ReviewComment.objects.filter(pk="comment_0000").delete()
    assert "comments_left_off" not in call("pool_get_review", agent_id="smith")


def test_the_command_lists_shows_and_sends(committed: None, make: Make, other: Path) -> None:
    make("smith", notes="\x1b[31mtwo\n")

    def run(*words: str) -> str:
        out = StringIO()
        with pytest.raises(SystemExit, match="0"):
            call_command("review", *words, stdout=out)
        return out.getvalue()

    assert "smith" in run() and "nexus/smith" in run("list")
    submit(other, "Write \x1b[31mit")
    said = run()
    assert "task 1" in said and "Write " in said and "\x1b" not in said
    assert [row.get("id") for row in json.loads(run("list", "--json"))["reviews"]] == [None, 1]
    run("comment", "smith", "Why?", "--path", "notes.txt", "--line", "1")
    said = run("show", "smith")
    assert "Why?" in said and "notes.txt:1-1 (new)" in said and "\x1b" not in said
    assert json.loads(run("send", "smith", "--json"))["sent"] == 1
    assert ReviewComment.objects.get().sent_at is not None


def send_mail(repository: Path, *to: str) -> str:
    """A message of lead; its id."""
    do("workspace_resolve", project_root=str(repository))
    for name in ("lead", *to):
        do("agent_register", agent_id=name)
    target = {"strategy": "mixed", "rules": [{"strategy": "direct", "agent_id": name} for name in to]}
    mail = {"subject": "s", "body": "b", "target": target}
    sent = do("message_create", project_root=str(repository), from_agent_id="lead", **mail)
    assert sent["ok"], sent
    return str(sent["data"]["message_id"])
