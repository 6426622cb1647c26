"""Rules of permissions: who writes them, what they decide for each way in which an agent acts, and who sees it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from django.test import Client as Browser
from django.test.utils import CaptureQueriesContext
from hypothesis import given
from hypothesis import strategies as st

from coordination.models import Event
from nexus.control.agents import questions
from nexus.control.agents.questions import Decision
from nexus.control.models import Entry, PermissionRule, PoolAgent, Question
from nexus.control.permissions import operator_rules
from nexus.control.permissions.rules import Action, Effect, Kind, Rule, Verdict, decide
from nexus.control.runners.tools import catalog
from nexus.core.waiting import WRITERS, in_thread
from tests.control.openai_server import calls, says, serving
from tests.control.playing import at_hand, command, lead, pool, refused, writer
from tests.control.scenes import Stage, created, small
from tests.pages import NASTY, act, shown

__all__ = ["at_hand", "lead", "writer"]

# The decision


def rule(effect: str, kind: str, pattern: str = "", number: int = 1) -> Rule:
    return Rule(number, Effect(effect), Kind(kind), pattern)


def write_to(*paths: str) -> Action:
    return Action(Kind.WRITE, paths=paths, cwd="/p")


ACTIONS = st.builds(
    Action,
    kind=st.sampled_from(Kind),
    text=st.sampled_from(["make", "make; rm x", "git status", "$X", "https://example.org/a"]) | st.text(max_size=20),
    paths=st.lists(st.sampled_from(["/p/a", "/p/src/b.py", "/etc/x", "/p/\ud800"]), max_size=3).map(tuple),
    named=st.lists(st.sampled_from(["/p/a", "/p/link"]), max_size=1).map(tuple),
    cwd=st.just("/p"),
    is_deep=st.booleans(),
    is_known=st.booleans(),
)
RULES = st.lists(
    st.builds(
        Rule,
        number=st.integers(1, 99),
        effect=st.sampled_from(Effect),
        kind=st.sampled_from(Kind),
        pattern=st.sampled_from(["", "make", "*", "make *", "src", "**/*.py", "/etc", "https://*"])
        | st.text(max_size=9),
    ),
    max_size=6,
)


@given(RULES, ACTIONS)
def test_no_rule_lifts_a_ceiling(rules: list[Rule], action: Action) -> None:
    assert decide(rules, action, Verdict.REFUSED).verdict is Verdict.REFUSED


@given(RULES, ACTIONS, st.sampled_from(Verdict))
def test_every_action_has_a_verdict_and_its_rule(rules: list[Rule], action: Action, ceiling: Verdict) -> None:
    ruling = decide(rules, action, ceiling)
    assert ruling.verdict is ceiling or ruling.rule in rules
    assert decide([], action, ceiling).verdict is ceiling
    assert isinstance(str(ruling), str)


@given(RULES, ACTIONS, st.sampled_from([Verdict.ALLOWED, Verdict.ASKED]))
def test_more_denials_never_allow_more(rules: list[Rule], action: Action, ceiling: Verdict) -> None:
    order = [Verdict.ALLOWED, Verdict.ASKED, Verdict.REFUSED]
    before = decide([each for each in rules if each.effect is not Effect.DENY], action, ceiling)
    asking = decide([each for each in rules if each.effect is Effect.ALLOW], action, ceiling)
    assert order.index(decide(rules, action, ceiling).verdict) >= order.index(before.verdict)
    assert order.index(before.verdict) >= order.index(asking.verdict)


@given(ACTIONS)
def test_always_allows_what_was_asked(action: Action) -> None:
    rules = [Rule(number, Effect.ALLOW, action.kind, pattern) for number, pattern in enumerate(action.patterns())]
    assert not rules or decide(rules, action, Verdict.ASKED).verdict is Verdict.ALLOWED


@pytest.mark.parametrize(
    ("pattern", "path", "matches"),
    [
        ("src", "/p/src", True),
        ("src", "/p/src/deep/a", True),
        ("src", "/p/src2", False),
        ("src/*.py", "/p/src/a.py", True),
        ("src/*.py", "/p/src/deep/a.py", False),
        ("src/**/*.py", "/p/src/deep/a.py", True),
        ("src/**/*.py", "/p/src/a.py", True),
        ("**/.env", "/p/.env", True),
        ("**/.env", "/p/a/b/.env", True),
        ("**/.env", "/p/a/x.env", False),
        ("**/.env", "/q/.env", False),
        ("/**/.env", "/q/.env", True),
        ("/q", "/q/x", True),
        (".", "/p/x", True),
        (r"a\*b", "/p/a*b", True),
        (r"a\*b", "/p/axb", False),
        ("a?c", "/p/abc", True),
        ("a?c", "/p/a/c", False),
        ("[a]", "/p/a", False),
    ],
)
def test_patterns_of_paths(pattern: str, path: str, matches: bool) -> None:
    ruling = decide([rule("deny", "write", pattern)], write_to(path), Verdict.ALLOWED)
    assert (ruling.verdict is Verdict.REFUSED) is matches
    ruling = decide([rule("allow", "write", pattern)], write_to(path), Verdict.ASKED)
    assert (ruling.verdict is Verdict.ALLOWED) is matches


def test_all_paths_must_be_allowed_and_one_denied_is_enough() -> None:
    both = write_to("/p/a", "/p/b")
    assert decide([rule("allow", "write", "a")], both, Verdict.ASKED).verdict is Verdict.ASKED
    each = [rule("allow", "write", "a", 1), rule("allow", "write", "b", 2)]
    assert decide(each, both, Verdict.ASKED).verdict is Verdict.ALLOWED
    assert str(decide([*each, rule("deny", "write", "b", 3)], both, Verdict.ASKED)) == (
        "refused by rule 3 (deny write at and below b)"
    )


def test_a_path_is_denied_by_its_name_and_by_its_place() -> None:
    link = Action(Kind.READ, paths=("/q/secret",), named=("/p/link",), cwd="/p")
    for pattern in ("/q", "link"):
        assert decide([rule("deny", "read", pattern)], link, Verdict.ALLOWED).verdict is Verdict.REFUSED
    assert decide([rule("allow", "read", "link")], link, Verdict.ASKED).verdict is Verdict.ASKED


@pytest.mark.parametrize(("pattern", "verdict"), [("**/.env", "asked"), ("src/.env", "asked"), ("doc/.env", "allowed")])
def test_what_may_lie_below_is_asked_about(pattern: str, verdict: str) -> None:
    search = Action(Kind.READ, paths=("/p/src",), cwd="/p", is_deep=True)
    assert decide([rule("deny", "read", pattern)], search, Verdict.ALLOWED).verdict == verdict


def test_a_command_that_is_not_told_is_asked_about_and_never_allowed() -> None:
    described = Action(Kind.RUN, "Run the tests", is_known=False)
    assert decide([rule("deny", "run", "rm *")], described, Verdict.ALLOWED).verdict is Verdict.ASKED
    assert decide([rule("allow", "run", "Run the tests")], described, Verdict.ASKED).verdict is Verdict.ASKED
    assert described.patterns() == []


def test_an_older_rule_with_a_wildcard_in_the_middle_asks_and_allows_nothing() -> None:
    push = Action(Kind.RUN, "git -C x push")
    assert decide([rule("allow", "run", "git * push *")], push, Verdict.ASKED).verdict is Verdict.ASKED
    assert decide([rule("deny", "run", "git * push *")], push, Verdict.ALLOWED).verdict is Verdict.ASKED


# Written and taken back


def add(effect: str = "allow", kind: str = "run", pattern: str = "make", scope: str = "pool", **more: Any) -> int:
    """Write a rule; its number."""
    return int(pool("pool_add_rule", effect=effect, kind=kind, pattern=pattern, scope=scope, **more)["rule_id"])


def verdict(agent: PoolAgent, action: Action, ceiling: Verdict = Verdict.ASKED) -> str:
    return operator_rules.decide(agent.agent_id, agent, action, ceiling).verdict.value


MAKE = Action(Kind.RUN, "make")


def test_it_is_written_listed_and_taken_back(lead: PoolAgent) -> None:
    number = add()
    [row] = pool("pool_list_rules")["rules"]
    assert (row["rule_id"], row["rule"], row["written_by"]) == (number, "allow run make, for all agents", "olga")
    assert add() == number, "it is there already"
    assert verdict(lead, MAKE) == "allowed"
    pool("pool_remove_rule", rule_id=number)
    assert (verdict(lead, MAKE), pool("pool_list_rules")["rules"]) == ("asked", [])
    assert refused("pool_remove_rule", rule_id=number)["code"] == "NOT_FOUND"
    assert add() != number, "a number is given once"
    events = Event.objects.filter(type__startswith="rule.").order_by("event_id")
    assert [(event.type, event.payload["rule_id"], event.payload["operator"]) for event in events[:2]] == [
        ("rule.written", number, "olga"),
        ("rule.taken_back", number, "olga"),
    ]


def test_it_holds_for_an_agent_a_runner_a_project_or_all(
    lead: PoolAgent, writer: PoolAgent, at_hand: Path, tmp_path: Path
) -> None:
    (tmp_path / "parser2").mkdir()
    other = created("other", tmp_path / "parser2", "trusted")

    def holds(scope: str, name: str = "") -> list[bool]:
        number = add("deny", scope=scope, name=name)
        found = [verdict(agent, MAKE) == "refused" for agent in (lead, writer, other)]
        listed = [agent.agent_id for agent in (lead, writer, other)
                  if pool("pool_list_rules", agent_id=agent.agent_id)["rules"]]  # fmt: skip
        assert listed == [
            agent.agent_id for agent, is_held in zip((lead, writer, other), found, strict=True) if is_held
        ]
        pool("pool_remove_rule", rule_id=number)
        return found

    assert holds("agent", "lead") == [True, False, False]
    assert holds("project", f"{at_hand}/src/..") == [True, True, False]
    assert holds("runner", "rehearsal") == [True, True, True]
    assert holds("runner", "claude") == [False, False, False]
    assert holds("pool") == [True, True, True]


def test_what_is_allowed_to_an_agent_is_not_inherited_and_what_is_denied_is(lead: PoolAgent, at_hand: Path) -> None:
    add("allow", scope="agent", name="lead")
    add("deny", pattern="rm *", scope="agent", name="lead")
    pool("pool_destroy_agent", agent_id="lead")
    later = created("lead", at_hand, "trusted")
    assert (verdict(later, MAKE), verdict(later, Action(Kind.RUN, "rm x"))) == ("asked", "refused")
    assert [row["effect"] for row in pool("pool_list_rules")["rules"]] == ["deny"]


def test_a_wrong_rule_is_refused(lead: PoolAgent) -> None:
    for wrong, field in [
        ({"effect": "maybe"}, "effect"),
        ({"kind": "fly"}, "kind"),
        ({"scope": "agent"}, "name"),
        ({"scope": "runner", "name": " "}, "name"),
        ({"scope": "project", "name": "src"}, "name"),
        ({"scope": "pool", "name": "lead"}, "name"),
        ({"pattern": "a\nb"}, "pattern"),
        ({"pattern": "a\u202eb"}, "pattern"),
        ({"pattern": "x" * 1_001}, "pattern"),
        ({"pattern": "git * push *"}, "pattern"),
        ({"pattern": "cd x && make"}, "pattern"),
        ({"kind": "write", "pattern": "../x"}, "pattern"),
    ]:
        rule = {"effect": "allow", "kind": "run", "pattern": "x", "scope": "pool", **wrong}
        error = refused("pool_add_rule", **rule)
        assert (error["code"], error["details"]["field"]) == ("VALIDATION_ERROR", field)
        assert not PermissionRule.objects.exists()


def test_an_agent_that_is_not_there_is_allowed_nothing(lead: PoolAgent) -> None:
    rule = {"effect": "allow", "kind": "run", "scope": "agent", "name": "nobody"}
    assert refused("pool_add_rule", **rule)["code"] == "NOT_FOUND"


def test_there_is_a_most_of_rules(lead: PoolAgent, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(operator_rules, "MOST_RULES", 2)
    for pattern in "ab":
        add(pattern=pattern)
    assert "2 rules" in refused("pool_add_rule", effect="deny", kind="run", scope="pool")["message"]
    assert add(pattern="a"), "it is there already"


def test_a_link_in_a_pattern_is_followed_when_it_is_written(lead: PoolAgent, at_hand: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(at_hand)
    add("deny", "read", f"{tmp_path}/link/src/*.py")
    assert PermissionRule.objects.get().pattern == f"{at_hand}/src/*.py"


def test_a_decision_is_one_query_however_many_rules_there_are(
    lead: PoolAgent, django_assert_num_queries: Callable[..., CaptureQueriesContext]
) -> None:
    for number in range(20):
        add(pattern=f"make {number}")
    with django_assert_num_queries(1):
        assert verdict(lead, Action(Kind.RUN, "make 7")) == "allowed"


# Every way in which an agent acts


@pytest.fixture
def stage(committed: None, configure: Callable[..., None], tmp_path: Path) -> Stage:
    configure(control=True, home=tmp_path / "home")
    place = tmp_path / "place"
    (place / "src").mkdir(parents=True)
    (place / "secret").write_text("sesame here\n")
    (place / "src" / "a").write_text("sesame there\n")
    return Stage(created("lead", place, "trusted"))


async def said_of(stage: Stage, tool: str, **arguments: Any) -> tuple[str, str]:
    """Take a turn in which a model calls a tool: the result, and the rules that decided, as the transcript has them."""
    turn = await stage.turn("go")
    scene = await stage.scene(turn)
    result = await catalog.call(scene, catalog.tools(scene.agent.permissions), tool, arguments)
    await in_thread(WRITERS, turn.delete)
    return result, "; ".join(scene.rulings)


async def written(*given: Any, **more: Any) -> int:
    return await in_thread(WRITERS, lambda: add(*given, **more))


@pytest.mark.usefixtures("starts_processes")
async def test_a_models_program_runs_by_a_rule_without_a_question(stage: Stage) -> None:
    number = await written("allow", "run", "echo *")
    result, by = await said_of(stage, "run", command="echo made")
    assert "made" in result and by == f"allowed by rule {number} (allow run echo *)" and not stage.asked
    result, by = await said_of(stage, "run", command="echo made; echo more")
    assert "not allowed" in result and [subject for *_, subject in stage.asked] == ["run echo made; echo more"]
    await in_thread(WRITERS, lambda: pool("pool_remove_rule", rule_id=number))
    result, by = await said_of(stage, "run", command="echo made")
    assert "not allowed" in result and by == ""


async def test_a_models_program_is_denied_wherever_it_stands(stage: Stage) -> None:
    await written("allow", "run", "")
    number = await written("deny", "run", "rm *")
    result, by = await said_of(stage, "run", command="true && rm src/a")
    assert result == f"Error: It was refused by rule {number} (deny run rm *)." and by in result
    assert (await said_of(stage, "run", command="$RM src/a"))[0].startswith("Error: It was not allowed")
    assert stage.asked and Path(stage.agent.cwd, "src", "a").exists()


async def test_a_models_files_are_kept_by_rules(stage: Stage) -> None:
    await written("deny", "read", "secret")
    await written("deny", "write", "src/**")
    Path(stage.agent.cwd, "link").symlink_to("secret")
    for path in ("secret", "link", f"{stage.agent.cwd}/src/../secret"):
        assert "refused by rule" in (await said_of(stage, "read_file", path=path))[0]
    assert "sesame there" in (await said_of(stage, "read_file", path="src/a"))[0]
    for tool, more in (("write_file", {"content": "x"}), ("edit_file", {"old_text": "sesame", "new_text": "x"})):
        assert "refused by rule" in (await said_of(stage, tool, path="src/a", **more))[0]
    assert "is written" in (await said_of(stage, "write_file", path="b", content="x"))[0]
    found = (await said_of(stage, "grep", pattern="sesame"))[0]
    assert found.count("sesame") == 1 and "src/a:1: sesame there" in found and "rules keep some files" in found


async def test_a_rule_that_asks_asks_and_the_answer_counts(stage: Stage) -> None:
    number = await written("ask", "write", "b")
    stage.decisions = [Decision(True)]
    assert "is written" in (await said_of(stage, "write_file", path="b", content="x"))[0]
    assert "not allowed" in (await said_of(stage, "write_file", path="b", content="y"))[0]
    assert (await said_of(stage, "read_file", path="b")) == ("x", "")
    assert {subject for *_, subject in stage.asked} == {f"write {stage.agent.cwd}/b"}
    assert number


async def test_the_floor_stays(stage: Stage, tmp_path: Path) -> None:
    for kind in ("read", "write"):
        await written("allow", kind, "")
    for path in (".git/hooks/x", f"{tmp_path}/home/runners.toml", "/etc/passwd", "HEAD", ".gitconfig"):
        assert (await said_of(stage, "write_file", path=path, content="x"))[0].startswith("Error: ")
    for path in (f"{tmp_path}/home/runners.toml", "/etc/passwd"):
        assert (await said_of(stage, "read_file", path=path))[0].startswith("Error: ")


@pytest.mark.usefixtures("starts_processes")
async def test_the_transcript_names_the_rule(stage: Stage) -> None:
    number = await written("allow", "run", "echo *")
    with serving(calls(("run", {"command": "echo hello"})), says("done")) as (_, url):
        await stage.take(small(url), "go")
    told = await in_thread(WRITERS, lambda: [entry.meta for entry in Entry.objects.filter(role="tool")])
    assert told == [{"by_rule": f"allowed by rule {number} (allow run echo *)"}]


# Faces


def test_the_command_writes_lists_and_takes_back(committed: None, configure: Callable[..., None]) -> None:
    configure(control=True)

    made = json.loads(
        command("permissions", "add", "allow", "run", "git status *", "--scope", "runner", "--name", "small", "--json")
    )
    assert made["rule"] == "allow run git status *, for agents of the runner small"
    assert "git status *" in command("permissions", "list")
    command("permissions", "remove", str(made["rule_id"]))
    assert not PermissionRule.objects.exists()


def test_the_page_writes_shows_and_takes_back(lead: PoolAgent, browser: Browser) -> None:
    rules = "/admin/control/permissionrule/"
    assert "No rule allows an agent" in shown(browser.get(rules))
    given = {"effect": "deny", "kind": "run", "pattern": "rm *", "scope": "agent", "name": "lead"}
    page = shown(browser.post(f"{rules}add/", given, follow=True))
    number = PermissionRule.objects.get().pk
    assert f"{rules}{number}/change/" in page and "run rm *" in page and "added" in page
    assert "run rm *" in shown(browser.get(f"/admin/pool/{lead.pk}/"))
    assert "no `..`" in shown(browser.post(f"{rules}add/", {**given, "kind": "read", "pattern": "../x"}))
    assert "taken back" in act(browser, do=f"pool_remove_rule {number}")
    assert not PermissionRule.objects.exists()
    for wrong in (number, "x", "9" * 40, "9" * 5_000):
        act(browser, do=f"pool_remove_rule {wrong}")
    browser.post(f"{rules}add/", {**given, "kind": "other", "pattern": NASTY.replace("\u202e", "")})
    page = browser.get(rules).content.decode()
    assert "<b>" not in page


def test_a_question_shows_the_rule_that_always_writes_and_for_whom(
    lead: PoolAgent, writer: PoolAgent, browser: Browser, at_hand: Path
) -> None:
    question = questions.ask(
        agent_id="writer", kind="permission", title="Run it?", subject="run make", action=Action(Kind.RUN, "make")
    )
    page = shown(browser.get(f"/admin/questions/{question.pk}/"))
    for line in ("for writer", "for agents of the runner rehearsal", f"for agents in {at_hand}"):
        assert f"allow run make, {line}" in page
    page = shown(
        browser.post(
            f"/admin/questions/{question.pk}/", {"verdict": "pool_allow_always", "scope": "project"}, follow=True
        )
    )
    rule = PermissionRule.objects.get()
    assert (str(rule), rule.question_id) == (f"allow run make, for agents in {at_hand}", question.pk)
    assert f"/admin/control/permissionrule/{rule.pk}/change/" in page and "It is answered" in page
    assert verdict(lead, MAKE) == "allowed"
    assert Question.objects.get().always
    for wrong in ("pool", "", "x"):
        browser.post(f"/admin/questions/{question.pk}/", {"verdict": "pool_allow_always", "scope": wrong})
    assert PermissionRule.objects.count() == 1


def test_what_no_rule_can_hold_for_is_allowed_once(lead: PoolAgent, browser: Browser) -> None:
    question = questions.ask(
        agent_id="lead", kind="permission", title="Run it?", action=Action(Kind.RUN, "make; rm x"), subject="run make"
    )
    page = shown(browser.get(f"/admin/questions/{question.pk}/"))
    assert "No rule can hold" in page and "do-always" not in page and "pool_allow " in page
    error = refused("pool_allow_always", question_id=question.pk)
    assert (error["code"], Question.objects.get().status) == ("VALIDATION_ERROR", "asked")
