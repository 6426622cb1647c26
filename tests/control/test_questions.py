"""People in the loop: an agent asks, one person answers, once; what nobody answers is refused."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from typing import Any

import pytest

from coordination.log.selectors import event_visible
from coordination.models import Event
from coordination.routing import Profile
from coordination.toolset import run as on_bus
from inbox.monitoring import Picture
from nexus.control.agents import pool, questions, turns
from nexus.control.agents.questions import Decision
from nexus.control.agents.questions import ask_and_wait as ask_in_turn
from nexus.control.agents.turns import Ended
from nexus.control.attention import KINDS
from nexus.control.maintenance import EXPIRY
from nexus.control.models import Question, QuestionKind, Turn, TurnStatus
from nexus.control.permissions import operator_rules
from nexus.control.permissions.members import Actor
from nexus.control.toolset import CONTROL
from nexus.core import waiting
from nexus.core.background_work import work_once
from nexus.core.clock import now
from nexus.core.operations import dispatch
from nexus.core.operations.caller import Caller
from nexus.core.operations.errors import NexusError
from nexus.maintenance.retention import prune
from tests.conftest import LOCAL, at_once
from tests.core.waiting import LONG, parked
from tests.handoffs.conftest import Clock, clock
from tests.store import failing

__all__ = ["clock"]
BO, CY = (Caller("admin", operator=name, connection=f"operator:{name}") for name in ("bo", "cy"))
PEOPLE = Actor("bo")
Answers = dict[str, Any]


def call(caller: Caller, name: str, /, **arguments: Any) -> Answers:
    """An operation of the toolset; the test fails on an error."""
    envelope = dispatch.run(CONTROL, caller, name, arguments)
    assert envelope["ok"], envelope
    data: Answers = envelope["data"]
    return data


def refused(caller: Caller, name: str, /, **arguments: Any) -> Answers:
    """The error of a call that must fail."""
    envelope = dispatch.run(CONTROL, caller, name, arguments)
    assert not envelope["ok"], envelope
    error: Answers = envelope["error"]
    return error


def ask(title: str = "May I?", **more: Any) -> Answers:
    """What ann asks, without waiting for the answer."""
    return call(LOCAL, "ask_operator", agent_id="ann", title=title, timeout_seconds=0, **more)


def may(title: str = "Run make?", **more: Any) -> Answers:
    return ask(title, kind="permission", **more)


def told() -> list[str]:
    """The events of questions, in order."""
    return list(Event.objects.filter(type__startswith="question.").order_by("event_id").values_list("type", flat=True))


@pytest.fixture
def turn(project: str, configure: Callable[..., None]) -> Callable[..., Turn]:
    """A turn that an agent of the pool is at."""
    configure(control=True)

    def begin(agent_id: str = "worker") -> Turn:
        order = pool.Order(agent_id, None, project, None, (), "rehearsal", None)
        _, queued = pool.create(PEOPLE, order, message="Do it.")
        assert queued is not None
        taken = turns.claim(queued.pk)
        assert taken is not None
        return taken

    return begin


# Asking and answering


@pytest.mark.parametrize(
    ("verdict", "more", "status", "allowed"),
    [
        ("pool_allow", {}, "allowed", True),
        ("pool_allow_always", {}, "allowed", True),
        ("pool_refuse", {}, "refused", False),
        ("pool_answer", {"words": "Use tmp."}, "answered", False),
    ],
)
def test_it_answers_a_permission(ann: str, verdict: str, more: Answers, status: str, allowed: bool) -> None:
    asked = may(detail="It builds.", client_id="1")
    assert (asked["status"], asked["allowed"]) == ("asked", False)
    answered = call(BO, verdict, question_id=asked["question_id"], **more)
    again = may(detail="It builds.", client_id="1")
    assert answered == again
    assert (again["status"], again["allowed"], again["words"]) == (status, allowed, more.get("words"))
    assert again["answered_by"] == "bo"
    assert told() == ["question.asked", "question.answered"]


def test_it_answers_a_question_in_words(ann: str) -> None:
    asked = ask("Which colour?")
    answered = call(BO, "pool_answer", question_id=asked["question_id"], words="Blue.")
    assert (answered["status"], answered["allowed"], answered["words"]) == ("answered", True, "Blue.")


@pytest.mark.parametrize("verdict", ["pool_allow", "pool_allow_always"])
def test_it_allows_nothing_where_words_are_asked_for(ann: str, verdict: str) -> None:
    asked = ask("Which colour?")
    assert refused(BO, verdict, question_id=asked["question_id"])["code"] == "VALIDATION_ERROR"
    assert call(BO, "pool_list_questions")["questions"] == [asked]


def test_it_asks_for_a_registered_agent_as_itself_and_in_strict_trust_with_a_session(
    ann: str, configure: Callable[..., None]
) -> None:
    bound = Caller("mcp", agent_id="bob", connection="test:bob")
    given = {"title": "May I?", "timeout_seconds": 0}
    assert refused(LOCAL, "ask_operator", agent_id="stranger", **given)["code"] == "NOT_FOUND"
    assert refused(bound, "ask_operator", agent_id="ann", **given)["code"] == "NOT_OWNER"
    configure(trust_mode="strict")
    assert refused(LOCAL, "ask_operator", agent_id="ann", **given)["code"] == "VALIDATION_ERROR"
    assert not Question.objects.exists()


def test_two_who_answer_at_once_answer_once(committed: None, ann_there: None) -> None:
    asked = may()
    verdicts = [(BO, "pool_allow_always"), (CY, "pool_refuse")]
    arguments = {"question_id": asked["question_id"]}
    answers = at_once([partial(dispatch.run, CONTROL, who, what, arguments) for who, what in verdicts])
    won = [answer for answer in answers if answer["ok"]]
    lost = [answer["error"] for answer in answers if not answer["ok"]]
    assert [error["code"] for error in lost] == ["INVALID_TRANSITION"]
    assert repr(won[0]["data"]["answered_by"]) in lost[0]["message"]  # who was first, and what they said
    assert Question.objects.get().always is (won[0]["data"]["answered_by"] == "bo")
    assert told() == ["question.asked", "question.answered"]


@pytest.fixture
def ann_there(committed: None) -> None:
    assert on_bus(LOCAL, "agent_register", {"agent_id": "ann"})["ok"]


# The same call again


def test_the_same_client_id_is_the_same_question(ann: str) -> None:
    assert ask(client_id="a") == ask(client_id="a")
    assert refused(LOCAL, "ask_operator", agent_id="ann", title="Other", client_id="a")["code"] == "VALIDATION_ERROR"
    assert Question.objects.count() == 1


def test_agents_that_ask_at_once_with_one_client_id_ask_once(committed: None, ann_there: None) -> None:
    asked = at_once([lambda: ask(client_id="a")["question_id"]] * 4)
    assert len(set(asked)) == 1
    assert told() == ["question.asked"]


def test_it_asks_no_more_than_people_can_answer(ann: str) -> None:
    asked = [ask(f"{number}?") for number in range(questions.MOST_OPEN)]
    error = refused(LOCAL, "ask_operator", agent_id="ann", title="One more?", timeout_seconds=0)
    assert (error["code"], error["details"]["limit"]) == ("QUOTA_EXCEEDED", questions.MOST_OPEN)
    call(BO, "pool_refuse", question_id=asked[0]["question_id"])
    assert ask("One more?")["status"] == "asked"


# Always


def test_always_holds_for_the_agent_and_the_subject(ann: str) -> None:
    assert on_bus(LOCAL, "agent_register", {"agent_id": "bob"})["ok"]
    first = may("Run make?", subject="run make")
    call(BO, "pool_allow_always", question_id=first["question_id"])
    again = may("Run make once more?", subject="run make")
    [rule] = call(BO, "pool_list_rules")["rules"]
    assert (rule["rule"], rule["question_id"]) == ("allow run make, for ann", first["question_id"])
    assert (again["allowed"], again["rule"], again["answered_by"]) == (True, rule["rule_id"], None)
    assert may("Run rm?", subject="run rm")["status"] == "asked"
    other = call(LOCAL, "ask_operator", agent_id="bob", title="x", kind="permission", subject="run make",
                 timeout_seconds=0)  # fmt: skip
    assert other["status"] == "asked"
    assert told().count("question.asked") == 3, "nobody was asked again"


def test_allowing_once_is_no_standing_answer(ann: str) -> None:
    call(BO, "pool_allow", question_id=may()["question_id"])
    assert may()["status"] == "asked"


def test_always_is_taken_back(ann: str) -> None:
    asked = may()
    call(BO, "pool_allow_always", question_id=asked["question_id"])
    [rule] = call(BO, "pool_list_rules")["rules"]
    assert rule["question_id"] == asked["question_id"]
    call(CY, "pool_remove_rule", rule_id=rule["rule_id"])
    assert may()["status"] == "asked"
    assert call(BO, "pool_list_rules")["rules"] == []
    assert [(event.type, event.payload["operator"]) for event in Event.objects.filter(type__startswith="rule.")] == [
        ("rule.written", "bo"),
        ("rule.taken_back", "cy"),
    ]


def ask_service(turn: Turn, **more: Any) -> Question:
    """The permission that a turn asks for."""
    asked = {"kind": QuestionKind.PERMISSION, "title": "Run make?", "subject": "run make", **more}
    return questions.ask(agent_id=turn.agent.agent_id, turn=turn, **asked)


def test_always_outlives_retention(ann: str, clock: Clock) -> None:
    call(BO, "pool_allow_always", question_id=may("Run make?")["question_id"])
    call(BO, "pool_refuse", question_id=may("Run rm?")["question_id"])
    clock.shift(timedelta(days=400))
    prune()
    assert not Question.objects.exists()
    assert may("Run make?")["allowed"]


# Time


def test_nobodys_answer_is_a_refusal(ann: str, clock: Clock, configure: Callable[..., None]) -> None:
    configure(pool_question_seconds=60)
    asked = may(client_id="1")
    clock.shift(timedelta(seconds=59))
    assert may(client_id="1")["status"] == "asked"
    clock.shift(timedelta(seconds=1))
    late = may(client_id="1")
    assert (late["status"], late["allowed"]) == ("expired", False)
    error = refused(BO, "pool_allow", question_id=asked["question_id"])
    assert (error["code"], error["details"]["status"]) == ("INVALID_TRANSITION", "expired")
    assert call(BO, "pool_list_questions")["questions"] == []
    assert told() == ["question.asked"]
    assert work_once(EXPIRY) == [None]
    assert told() == ["question.asked", "question.expired"]
    assert work_once(EXPIRY) == []


def test_a_question_from_before_the_clock_was_set_right_has_expired(ann: str, clock: Clock) -> None:
    clock.shift(timedelta(minutes=10))
    here = may()  # as on a machine whose clock is ahead a little
    clock.shift(timedelta(days=1, minutes=-10))
    ahead = may("And this?")
    clock.shift(timedelta(days=-1))
    call(BO, "pool_get_question", question_id=here["question_id"])  # any call looks for such times
    work_once(EXPIRY)
    states = [call(BO, "pool_get_question", question_id=each["question_id"])["status"] for each in (here, ahead)]
    assert states == ["asked", "expired"]


def test_what_is_answered_does_not_expire(ann: str, clock: Clock) -> None:
    asked = may()
    call(BO, "pool_allow", question_id=asked["question_id"])
    clock.shift(timedelta(days=30))
    assert questions.expire(asked["question_id"]).status == "allowed"
    assert told() == ["question.asked", "question.answered"]


def test_time_and_a_person_at_once_end_a_question_once(committed: None, ann_there: None, clock: Clock) -> None:
    asked = may()
    answer = {"question_id": asked["question_id"]}
    clock.shift(timedelta(seconds=1_799, milliseconds=999))

    def late() -> None:
        clock.shift(timedelta(seconds=1))
        work_once(EXPIRY)

    at_once([lambda: dispatch.run(CONTROL, BO, "pool_allow", answer), late])
    assert len(told()) == 2
    assert told()[-1] == f"question.{'answered' if Question.objects.get().is_allowed else 'expired'}"


# Waiting


async def asking(caller: Caller = LOCAL, **more: Any) -> asyncio.Task[Answers]:
    """A call of ann's that waits for its answer."""
    arguments = {"agent_id": "ann", "title": "Run make?", "kind": "permission", "timeout_seconds": LONG, **more}
    task = asyncio.create_task(dispatch.arun(CONTROL, caller, "ask_operator", arguments))
    await parked()
    return task


async def said(verdict: str, **more: Any) -> None:
    """What bo says to the one question."""
    question = await waiting.in_thread(waiting.READERS, Question.objects.get)
    envelope = await dispatch.arun(CONTROL, BO, verdict, {"question_id": question.pk, **more})
    assert envelope["ok"], envelope


async def test_whoever_asks_is_told_the_answer(committed: None, ann_there: None) -> None:
    task = await asking()
    await said("pool_answer", words="Use ninja.")
    data = (await asyncio.wait_for(task, LONG))["data"]
    assert (data["status"], data["allowed"], data["words"]) == ("answered", False, "Use ninja.")


async def test_a_call_ends_with_the_time_of_its_question(
    committed: None, ann_there: None, configure: Callable[..., None]
) -> None:
    configure(pool_question_seconds=0.1)
    data = (await asyncio.wait_for(await asking(), LONG))["data"]
    assert (data["status"], data["allowed"]) == ("expired", False)
    assert await waiting.in_thread(waiting.READERS, told) == ["question.asked", "question.expired"]


async def test_a_call_whose_own_time_is_over_first_leaves_its_question(committed: None, ann_there: None) -> None:
    arguments = {"agent_id": "ann", "title": "x", "timeout_seconds": 0.01, "client_id": "1"}
    envelope = await dispatch.arun(CONTROL, LOCAL, "ask_operator", arguments)
    assert envelope["data"]["status"] == "asked"
    await said("pool_answer", words="y")
    again = await dispatch.arun(CONTROL, LOCAL, "ask_operator", arguments)
    assert again["data"]["words"] == "y"


# In a turn


async def begun(turn: Callable[..., Turn], **more: Any) -> tuple[Turn, asyncio.Task[Decision]]:
    """A turn that asks for a permission, and waits."""
    taken = await waiting.in_thread(waiting.WRITERS, turn)
    asked = {"kind": "permission", "title": "Run make?", "detail": "It builds.", "subject": "run make", **more}
    task = asyncio.create_task(ask_in_turn(taken, asked.pop("kind"), asked.pop("title"), asked.pop("detail"), **asked))
    await parked()
    return taken, task


@pytest.mark.parametrize(
    ("verdict", "more", "decision"),
    [
        ("pool_allow", {}, Decision(True)),
        ("pool_refuse", {}, Decision(False, "An operator refused.")),
        ("pool_answer", {"words": "Use ninja."}, Decision(False, "Use ninja.")),
    ],
)
async def test_a_turn_is_told_the_answer(
    committed: None, turn: Callable[..., Turn], verdict: str, more: Answers, decision: Decision
) -> None:
    _, task = await begun(turn)
    await said(verdict, **more)
    assert await asyncio.wait_for(task, LONG) == decision


async def test_always_asks_nobody_again_in_a_turn(committed: None, turn: Callable[..., Turn]) -> None:
    taken, task = await begun(turn)
    await said("pool_allow_always")
    assert (await asyncio.wait_for(task, LONG)).allowed
    again = await ask_in_turn(taken, "permission", "Run make?", "Again.", subject="run make")
    [rule] = await waiting.in_thread(waiting.READERS, operator_rules.every)
    assert again == Decision(True, rule=rule.pk)


async def test_a_turn_goes_on_refused_when_nobody_answers(
    committed: None, turn: Callable[..., Turn], configure: Callable[..., None]
) -> None:
    configure(pool_question_seconds=0.1)
    _, task = await begun(turn)
    assert await asyncio.wait_for(task, LONG) == Decision(False, "Nobody answered in time, which is a refusal.")


@pytest.mark.parametrize(("look", "seconds", "allowed"), [("get", 1_800, True), ("expire", 0.1, False)])
async def test_a_turn_waits_on_while_the_store_is_away(
    committed: None,
    turn: Callable[..., Turn],
    configure: Callable[..., None],
    monkeypatch: pytest.MonkeyPatch,
    look: str,
    seconds: float,
    allowed: bool,
) -> None:
    configure(pool_question_seconds=seconds)
    looked, really = asyncio.Event(), getattr(questions, look)
    loop = asyncio.get_running_loop()

    def away(question_id: str) -> Question:
        monkeypatch.setattr(questions, look, really)
        loop.call_soon_threadsafe(looked.set)
        raise failing("away")

    monkeypatch.setattr(questions, look, away)
    _, task = await begun(turn)
    await asyncio.wait_for(looked.wait(), LONG)
    if allowed:
        await said("pool_allow")
    assert (await asyncio.wait_for(task, LONG)).allowed is allowed


async def test_a_turn_that_stops_waiting_withdraws_its_question(committed: None, turn: Callable[..., Turn]) -> None:
    _, task = await begun(turn)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await waiting.in_thread(waiting.READERS, told) == ["question.asked", "question.withdrawn"]


async def test_an_agent_that_ends_while_it_asks_is_told_so(committed: None, turn: Callable[..., Turn]) -> None:
    _, task = await begun(turn)
    await waiting.in_thread(waiting.WRITERS, lambda: pool.destroy(PEOPLE, "worker"))
    assert await asyncio.wait_for(task, LONG) == Decision(False, "The question was withdrawn.")
    question = await waiting.in_thread(waiting.READERS, Question.objects.get)
    error = (await dispatch.arun(CONTROL, BO, "pool_allow", {"question_id": question.pk}))["error"]
    assert (error["code"], error["details"]) == ("INVALID_TRANSITION", {"status": "withdrawn"})


async def test_what_cannot_be_shown_whole_is_refused(committed: None, turn: Callable[..., Turn]) -> None:
    taken = await waiting.in_thread(waiting.WRITERS, turn)
    decision = await ask_in_turn(taken, "permission", "Run it?", "x" * 70_000, subject="run")
    assert not decision.allowed
    assert "70000 bytes" in (decision.words or "")
    assert not await waiting.in_thread(waiting.READERS, Question.objects.exists)


async def test_a_long_title_is_shown_whole_in_the_detail(committed: None, turn: Callable[..., Turn]) -> None:
    _, task = await begun(turn, title="t" * 300)
    question = await waiting.in_thread(waiting.READERS, Question.objects.get)
    assert (len(question.title), question.detail) == (255, f"{'t' * 300}\n\nIt builds.")
    await said("pool_refuse")
    await task


@pytest.mark.parametrize("status", [TurnStatus.DONE, TurnStatus.FAILED, TurnStatus.CANCELLED, TurnStatus.INTERRUPTED])
def test_a_question_is_withdrawn_with_its_turn(db: None, turn: Callable[..., Turn], status: TurnStatus) -> None:
    taken = turn()
    asked = call(LOCAL, "ask_operator", agent_id="worker", title="Which?", timeout_seconds=0)  # of the same turn
    turns.settle_turn(taken, Ended(status))
    assert call(BO, "pool_get_question", question_id=asked["question_id"])["status"] == "withdrawn"


def test_a_turn_that_is_over_asks_nothing(db: None, turn: Callable[..., Turn]) -> None:
    taken = turn()
    turns.settle_turn(taken, Ended(TurnStatus.DONE))
    with pytest.raises(NexusError, match="over"):
        ask_service(taken)
    assert not Question.objects.exists()


# Audit


def test_everything_asked_and_answered_is_in_the_log(ann: str) -> None:
    asked = may("Run make?", detail="It builds.", subject="run make")
    call(BO, "pool_answer", question_id=asked["question_id"], words="Use ninja.")
    first, second = Event.objects.filter(type__startswith="question.").order_by("event_id")
    about = {"question_id": asked["question_id"], "agent_id": "ann", "kind": "permission", "title": "Run make?",
             "subject": "run make", "turn_id": None}  # fmt: skip
    assert (first.actor_agent_id, first.payload) == ("ann", {**about, "detail": "It builds."})
    said = {"operator": "bo", "status": "answered", "words": "Use ninja."}
    assert (second.actor_agent_id, second.payload) == (None, {**about, **said})


def test_only_the_asker_and_the_people_see_its_questions_in_the_log(ann: str, workspace: str) -> None:
    may()
    event = Event.objects.get(type="question.asked")
    seen = {who: event_visible(event, Profile(who, None, frozenset()), event.created_at) for who in ("ann", "bob")}
    assert seen == {"ann": True, "bob": False}


# Too late


def test_what_nobody_answered_waits_for_a_person_who_answers_late(ann: str, workspace: str, clock: Clock) -> None:
    on_bus(LOCAL, "session_open", {"agent_id": "ann", "workspace_id": workspace})
    asked, other = ask("Which colour?")["question_id"], may()["question_id"]
    [kind] = [kind for kind in KINDS if kind.name == "expired-questions"]

    def left() -> list[str]:
        return [need.subject for need in kind.find(Picture(now()), 5).needs]

    assert left() == []
    assert refused(BO, "pool_answer_late", question_id=asked, words="Red.")["code"] == "INVALID_TRANSITION"
    clock.shift(timedelta(days=1) - timedelta(minutes=1))
    assert set(left()) == {asked, other}, "whether or not that is recorded"
    work_once(EXPIRY)
    assert set(left()) == {asked, other}
    late = call(BO, "pool_answer_late", question_id=asked, words="Red.")
    assert (late["status"], late["allowed"], late["answered_by"]) == ("expired", False, "bo")
    assert call(BO, "pool_dismiss_question", question_id=other)["allowed"] is False
    assert left() == []
    [message] = on_bus(LOCAL, "inbox_pull", {"agent_id": "ann"})["data"]["messages"]
    assert (message["subject"], message["body"]) == ("A late answer: Which colour?", "Red.")
    for again in (asked, other):
        assert "looked after" in refused(CY, "pool_answer_late", question_id=again, words="Blue.")["message"]
    assert told()[-2:] == ["question.answered_late"] * 2


def test_a_late_answer_that_can_arrive_nowhere_is_refused(ann: str, clock: Clock) -> None:
    asked = ask()["question_id"]
    clock.shift(timedelta(hours=20))
    assert refused(BO, "pool_answer_late", question_id=asked, words="Yes.")["code"] == "INVALID_TRANSITION"
    assert questions.get(asked).answered_by is None
