"""The pages of the pool."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import time_machine
from django.test import Client as Browser

from inbox.models import Delivery
from nexus.control.agents import questions, turns, wake_kinds
from nexus.control.agents.turns import Closing
from nexus.control.attention import VERDICTS, WHOLE
from nexus.control.models import Entry, PermissionRule, PoolAgent, Question, Role, Turn, TurnStatus, Wake
from nexus.control.runners import sandbox
from nexus.core.clock import now
from nexus.web.login import local_account
from tests.control.playing import at_hand, fill, lead, pool, say, send, settle, take, writer
from tests.pages import act, do, queries, shown

__all__ = ["at_hand", "lead", "writer"]
POOL = "/admin/control/poolagent/"
NOON = datetime(2126, 3, 1, 12, tzinfo=UTC)
HOSTILE = "<script>alert(1)</script> [x](javascript:alert(2)) \u202etxt {{ 7*7 }}"


def page_of(browser: Browser, agent: PoolAgent, query: str = "") -> str:
    return shown(browser.get(f"/admin/pool/{agent.pk}/{query}"))


def positions(page: str) -> list[int]:
    """The positions of the entries that a page shows, in order."""
    return [int(number) for number in re.findall(r'<li id="e-(\d+)"', page)]


def many(parent: PoolAgent, number: int) -> None:
    """So many children of an agent."""
    moment = now()
    PoolAgent.objects.bulk_create(
        PoolAgent(pool_agent_id=f"pool_x{n:04d}", agent_id=f"child{n:04d}", parent=parent, depth=1, preset="worker",
                  cwd=parent.cwd, runner="rehearsal", is_temporary=False, created_by="olga", created_at=moment,
                  last_action_at=moment)
        for n in range(number)
    )  # fmt: skip


# The pool


def test_it_says_how_to_start_a_pool_where_none_runs(db: None, browser: Browser) -> None:
    page = shown(browser.get(POOL))
    assert "No pool runs" in page and "nexus serve --control" in page
    assert f"{POOL}add/" not in page and browser.get(f"{POOL}add/")["Location"] == POOL
    assert "in the pool" not in shown(browser.get("/admin/"))


def rows(browser: Browser, query: str = "") -> dict[str, str]:
    """The rows of the list of the pool, by agent."""
    listed = shown(browser.get(f"{POOL}{query}")).partition('id="result_list"')[2].partition("</table>")[0]
    each = (part for part in listed.split("<tr")[1:] if "/admin/pool/" in part)
    return {re.findall(r'/admin/pool/[^"]+">\s*<bdi[^>]*>([^<]+)', part)[0]: part for part in each}


def test_it_shows_each_agent_with_its_parent_and_what_it_may_and_is_at(
    lead: PoolAgent, writer: PoolAgent, at_hand: Path, browser: Browser
) -> None:
    pool("pool_create_agent", agent_id="aside", cwd=str(at_hand))
    send("writer", "Write the **reader**")
    send("writer", "Then its tests")
    turn = take()
    listed = rows(browser)
    assert list(listed) == ["lead", "writer", "aside"] and f'href="{POOL}add/' in shown(browser.get(POOL))
    row = listed["writer"]
    assert "below <" in row and "below <" not in listed["lead"] + listed["aside"]
    assert "at work" in row and "Write the **reader**" in row and "1 waits" in row and str(at_hand) in listed["aside"]
    assert f"Writes at and below {at_hand}/src" in row and "Runs no programs" in row and "Goes without glob" in row
    assert f"{Entry.objects.get(turn=turn).tokens} in context" in row
    assert "asks you" not in row
    ask(writer)
    assert "asks you" in rows(browser)["writer"]


def test_it_counts_the_tokens_that_turns_used(lead: PoolAgent, browser: Browser) -> None:
    for _ in range(2):
        send("lead")
        settle(take(), input_tokens=1_500_000, output_tokens=611)
    assert "3,001,222 used" in rows(browser)["lead"]
    assert "3,000,000 tokens in, 1,222 out, in 2 turns" in " ".join(page_of(browser, lead).split())


def test_a_turn_is_an_act_of_its_agent_from_its_beginning_to_its_end(lead: PoolAgent, browser: Browser) -> None:
    with time_machine.travel(NOON, tick=False) as clock:

        def seen() -> str:
            return shown(browser.get("/admin/")).split('data-label="Last act"')[1].split("</time>")[0]

        send("lead")
        clock.shift(3600)
        turn = take()
        assert 'datetime="2126-03-01T13:00' in seen()
        clock.shift(600)
        say(turn, Role.ASSISTANT, "I am at it.")
        assert 'datetime="2126-03-01T13:10' in seen()
        clock.shift(600)
        settle(turn, closing=Closing("Done."))
        assert 'datetime="2126-03-01T13:20' in seen()
        send("lead", "more")
        clock.shift(600)
        assert 'datetime="2126-03-01T13:20' in seen(), "to be sent something is no act"


def test_it_shows_agents_that_ended_apart(lead: PoolAgent, writer: PoolAgent, browser: Browser) -> None:
    pool("pool_destroy_agent", agent_id="lead")
    listed = rows(browser)
    assert list(listed) == ["writer"] and "which ended" in listed["writer"]
    assert list(rows(browser, "?state=ended")) == ["lead"] and len(rows(browser, "?state=all")) == 2
    assert list(rows(browser, "?q=writ")) == ["writer"] and not rows(browser, "?q=lead")


def test_its_old_address_leads_to_the_list(lead: PoolAgent, browser: Browser) -> None:
    assert browser.get("/admin/pool/?state=ended")["Location"] == f"{POOL}?state=ended"
    assert browser.get(f"{POOL}{lead.pk}/change/")["Location"] == f"/admin/pool/{lead.pk}/"


def test_it_shows_the_pool_whatever_its_address_asks(lead: PoolAgent, browser: Browser) -> None:
    for query in ["p=7", "state=gone", "q=%00"]:
        assert browser.get(f"{POOL}?{query}").status_code == 200


def test_it_asks_no_more_queries_of_more_agents(lead: PoolAgent, browser: Browser) -> None:
    few = queries(lambda: browser.get(POOL))
    many(lead, 20)
    send("child0003")
    take()
    assert queries(lambda: browser.get(POOL)) == few


# An agent


def test_it_shows_a_transcript_with_tool_calls_folded(lead: PoolAgent, browser: Browser) -> None:
    send("lead", "Look **there**", source="mail")
    turn = take()
    called = {"id": "call-1", "name": "read_file", "arguments": {"path": "src/reader.py"}}
    say(turn, Role.ASSISTANT, "I look.", meta={"tool_calls": [called]})
    say(turn, Role.TOOL, '{"lines": 88}', tool_call_id="call-1")
    say(turn, Role.ASSISTANT, "It has `88` lines.")
    settle(turn, answer="It has `88` lines.")
    page = page_of(browser, lead)
    assert positions(page) == [0, 1, 2, 3]
    assert "Look <strong>there</strong>" in page and "through <bdi" in page and "<code>88</code> lines" in page
    folded = re.findall(r"<details id=\"(?:call|result)-[\d-]+\"\s*>(.*?)</details>", page, re.DOTALL)
    assert len(folded) == 2
    assert "read_file" in folded[0] and "src/reader.py" in folded[0]
    assert re.search(r"read_file</bdi>:\s+13\s+characters", folded[1]) and "88" in folded[1]


def test_it_names_the_call_that_an_answer_on_the_live_page_is_of(lead: PoolAgent, browser: Browser) -> None:
    send("lead")
    turn = take()
    say(turn, Role.ASSISTANT, "", meta={"tool_calls": [{"id": "c", "name": "grep", "arguments": {}}]})
    say(turn, Role.TOOL, "nothing", tool_call_id="c")
    page = shown(browser.get(f"/admin/pool/{lead.pk}/tail/?after=2"))
    assert positions(page) == [2] and re.search(r"grep</bdi>:", page)


@pytest.mark.parametrize(
    "meta",
    [None, [], "x", 7, {"tool_calls": None}, {"tool_calls": {"a": 1}}, {"tool_calls": [1, None, {}, {"id": 3}]},
     {"tool_calls": [{"id": "c", "name": None, "arguments": None}]}, {"tool_calls": [{"name": {"a": []}}]}],
)  # fmt: skip
def test_it_shows_a_transcript_whatever_its_runner_noted(lead: PoolAgent, browser: Browser, meta: Any) -> None:
    send("lead")
    turn = take()
    say(turn, Role.ASSISTANT, "said", meta={"x": 1})
    Entry.objects.filter(role=Role.ASSISTANT).update(meta=meta)
    say(turn, Role.TOOL, "result", tool_call_id="c")
    assert positions(page_of(browser, lead)) == [0, 1, 2]


def test_it_shows_a_long_transcript_a_page_at_a_time(lead: PoolAgent, browser: Browser) -> None:
    fill(lead, 130)
    page = page_of(browser, lead)
    seen = positions(page)
    assert seen[-1] == 129 and len(seen) == 20 and "data-tail=" in page
    while found := re.search(r'href="[^"]+\?before=(\d+)">Earlier entries', page):
        page = page_of(browser, lead, f"?before={found[1]}")
        seen = [*positions(page), *seen]
        assert "To the newest" in page and "data-tail=" not in page
    assert seen == list(range(130))


def test_it_gives_the_live_page_each_new_entry_once(lead: PoolAgent, browser: Browser) -> None:
    fill(lead, 120)
    after, seen = 0, []
    while True:
        page = shown(browser.get(f"/admin/pool/{lead.pk}/tail/?after={after}"))
        seen += positions(page)
        found = re.search(r'data-upto="(\d+)"', page)
        assert found is not None
        after = int(found[1])
        if "data-more" not in page:
            break
    assert seen == list(range(120)) and after == 120
    assert positions(shown(browser.get(f"/admin/pool/{lead.pk}/tail/?after=120"))) == []


def test_it_asks_no_more_queries_of_a_longer_transcript(lead: PoolAgent, browser: Browser) -> None:
    fill(lead, 3)
    few = queries(lambda: page_of(browser, lead))
    fill(lead, 15)
    assert queries(lambda: page_of(browser, lead)) == few


def test_it_shows_the_beginning_of_a_long_entry_and_all_of_it_when_asked(lead: PoolAgent, browser: Browser) -> None:
    send("lead")
    turn = take()
    say(turn, Role.ASSISTANT, "a" * 5_000 + "END")
    page = page_of(browser, lead)
    assert "END" not in page
    found = re.search(r'<a href="([^"#]+)#e-1"\s*>Show all\s+5,003', page)
    assert found is not None
    assert "END" in shown(browser.get(found[1].replace("&amp;", "&")))


def test_it_leads_to_the_runs_and_the_children_of_the_agent(
    lead: PoolAgent, writer: PoolAgent, browser: Browser
) -> None:
    send("lead", "one")
    settle(take(), TurnStatus.FAILED, why="the model said 500")
    send("writer", "elsewhere")
    for content in ("two", "three"):
        send("lead", content)
    take()
    page = page_of(browser, lead)
    facts = page.partition('id="turns"')[2].partition("</dl>")[0]
    assert "2 wait" in facts and "1 living" in facts
    runs, children = re.findall(r'href="([^"]+__exact=[^"]+)"', facts)
    listed = shown(browser.get(runs)).partition('id="result_list"')[2]
    assert [word in listed for word in ("one", "two", "three", "elsewhere")] == [True, True, True, False]
    assert "the model said 500" in listed and list(rows(browser, children.removeprefix(POOL))) == ["writer"]


def test_it_shows_an_agent_that_ended_and_lets_nobody_act_on_it(lead: PoolAgent, browser: Browser) -> None:
    send("lead", "one")
    settle(take())
    pool("pool_destroy_agent", agent_id="lead")
    page = page_of(browser, lead)
    assert positions(page) == [0] and ">ended<" in page
    assert not re.search(r"<button[^>]*>\s*(Send|Compact|End…|Stop)", page)


def test_it_acts_on_no_other_agent_of_the_same_name(lead: PoolAgent, at_hand: Path, browser: Browser) -> None:
    pool("pool_destroy_agent", agent_id="lead")
    pool("pool_create_agent", agent_id="lead", cwd=str(at_hand))
    request_id = send("lead")
    page = shown(browser.post(f"/admin/pool/{lead.pk}/", {"content": "x", "request_id": "r"}, follow=True))
    assert "lead has ended" in page
    for verb in ("compact", "resume"):
        assert "“lead” was not" in act(browser, do=f"pool_{verb} {lead.pk}")
    act(browser, do=f"pool_destroy_agent {lead.pk}", asked="1")
    assert PoolAgent.objects.living().filter(agent_id="lead").exists()
    assert [turn.request_id for turn in Turn.objects.open()] == [request_id]


def ask(agent: PoolAgent, title: str = "Run make?", **more: Any) -> Question:
    """A question of an agent's, for a permission unless told otherwise."""
    return questions.ask(agent_id=agent.agent_id, **{"kind": "permission", "title": title, **more})


def test_it_shows_what_the_agent_asks_and_takes_the_answer_there(lead: PoolAgent, browser: Browser) -> None:
    assert "It asks you" not in page_of(browser, lead)
    question = ask(lead, detail="It builds the parser.", subject="run make")
    page = page_of(browser, lead)
    assert "It asks you" in page and "It builds the parser." in page and "run make" in page
    assert re.findall(r'name="do"\s+value="(\w+) qst_', page) == [*VERDICTS]
    back = {"do": f"pool_allow_always {question.pk}", "next": f"/admin/pool/{lead.pk}/"}
    page = shown(browser.post("/admin/act/", back, follow=True))
    assert "It asks you" not in page and "Take back" in page and "run make" in page
    rule = PermissionRule.objects.get().pk
    browser.post("/admin/act/", {**back, "do": f"pool_remove_rule {rule}"}, follow=True)
    assert not PermissionRule.objects.exists()


def test_it_has_a_long_permission_read_whole_before_it_is_answered(lead: PoolAgent, browser: Browser) -> None:
    question = ask(lead, detail="x" * WHOLE + "harm")
    page = page_of(browser, lead)
    assert "Read and answer" in page and f"/admin/questions/{question.pk}/" in page
    assert "harm" not in page and f"pool_allow {question.pk}" not in page


def test_it_shows_no_questions_of_others(lead: PoolAgent, writer: PoolAgent, at_hand: Path, browser: Browser) -> None:
    ask(writer)
    pool("pool_destroy_agent", agent_id="lead")
    pool("pool_create_agent", agent_id="lead", cwd=str(at_hand))
    ask(PoolAgent.objects.living().get(agent_id="lead"))
    assert "It asks you" not in page_of(browser, lead) and "It asks you" in page_of(browser, writer)


def test_it_tells_which_bound_keeps_the_agent_from_being_woken_and_wakes_it_again(
    lead: PoolAgent, browser: Browser, monkeypatch: pytest.MonkeyPatch, at_hand: Path
) -> None:
    assert "nothing: it is sent its turns" in page_of(browser, lead)
    monkeypatch.setattr(wake_kinds, "WAKE_TOKENS", 900)
    PoolAgent.objects.update(wake_on=["mail", "task"], held_why="budget", held_at=now())
    page = " ".join(page_of(browser, lead).split())
    assert "mail to it, planned tasks of its own that can begin" in page and "0 of 900 tokens" in page
    assert "not woken any more" in page and "Its woken turns took the 900 tokens of a day" in page
    assert "not woken</span>" in rows(browser)["lead"]
    back = {"do": f"pool_resume {lead.pk}", "next": f"/admin/pool/{lead.pk}/"}
    assert "not woken any more" not in shown(browser.post("/admin/act/", back, follow=True))
    PoolAgent.objects.update(wake_tokens=0)
    assert "no limit" in page_of(browser, lead)


def test_it_tells_what_woke_the_agent_in_vain_too_often(lead: PoolAgent, at_hand: Path, browser: Browser) -> None:
    PoolAgent.objects.update(wake_on=["mail", "handoff"])
    to = {"strategy": "direct", "agent_id": "lead"}
    given = {"project_root": str(at_hand), "from_agent_id": "ann", "subject": "Look", "body": "Please.", "target": to}
    do("agent_register", agent_id="ann")
    do("workspace_resolve", project_root=str(at_hand))
    message = do("message_create", **given)["message_id"]
    for status in [TurnStatus.FAILED] * 4 + [TurnStatus.DONE, TurnStatus.FAILED]:
        send("lead")
        turn = take()
        Wake.objects.create(turn=turn, kind="handoff", item="hnd_often")
        Wake.objects.create(turn=turn, kind="mail", item=message)
        if status == TurnStatus.FAILED:
            Wake.objects.create(turn=turn, kind="task", item="tsk_never")
        Turn.objects.filter(pk=turn.pk).update(status=status, ended_at=now())
    page = page_of(browser, lead)
    assert "tsk_never" in page and "hnd_often" not in page and "dead letter" not in page
    Delivery.objects.update(status="parked")
    assert "1 message is a dead letter" in page_of(browser, lead)
    pool("pool_destroy_agent", agent_id="lead")
    assert "in vain" not in page_of(browser, lead)


def test_it_tells_what_a_turn_may_take_what_woke_it_and_that_a_limit_bit(lead: PoolAgent, browser: Browser) -> None:
    send("lead", source="mail")
    settle(take(), halted=True)
    Turn.objects.update(depth=1)
    page = " ".join(re.sub(r"<[^>]+>", "", page_of(browser, lead)).split())
    assert "50 rounds and 1 h at most" in page and "its last one was ended by the limit on rounds" in page
    assert "woken by mail ·" in " ".join(re.sub(r"<[^>]+>", "", shown(browser.get("/admin/control/turn/"))).split())


def test_it_says_in_plain_words_what_bounds_the_agent(
    committed: None, lead: PoolAgent, browser: Browser, monkeypatch: pytest.MonkeyPatch, at_hand: Path
) -> None:
    assert "It opens no file and starts no program." in page_of(browser, lead)
    browser.force_login(local_account())  # where programs run, being on this machine is not enough
    (at_hand.parent / "home" / "runners.toml").write_text('[runners.coder]\nkind = "acp"\ncommand = ["coder"]\n')
    PoolAgent.objects.update(runner="coder")
    for works, said in ((True, "nforced by bubblewrap"), (False, "nly asked, not enforced: no such luck")):
        monkeypatch.setattr(sandbox, "state", lambda works=works: sandbox.SandboxState(works, "no such luck"))
        assert said in page_of(browser, lead) and said in shown(browser.get("/admin/control/poolagent/add/"))


def test_it_says_that_the_context_is_nearly_full(lead: PoolAgent, browser: Browser) -> None:
    send("lead")
    take()
    assert "nearly full" not in page_of(browser, lead)
    Entry.objects.update(tokens=180_000)
    assert "nearly full" in page_of(browser, lead)


def test_it_answers_404_for_an_agent_that_never_was(at_hand: Path, browser: Browser) -> None:
    for what in ("", "tail/"):
        assert browser.get(f"/admin/pool/pool_x/{what}").status_code == 404
    for what in ("", "end/", "compact/"):
        assert browser.post(f"/admin/pool/pool_x/{what}", {"content": "x"}).status_code == 404


def test_it_says_what_is_wrong_with_the_runners(
    committed: None, lead: PoolAgent, browser: Browser, at_hand: Path
) -> None:
    PoolAgent.objects.update(runner="gone")
    assert "not in <code>runners.toml</code> any more" in page_of(browser, lead)
    (at_hand.parent / "home" / "runners.toml").write_text("nonsense")
    browser.force_login(local_account())  # it may have meant runners that start programs
    new = shown(browser.get("/admin/control/poolagent/add/"))
    for page in (page_of(browser, lead), shown(browser.get(POOL)), new):
        assert "is no TOML" in page and "goes on with what the file said before" in page
    assert 'name="model"' in new, "what it said before can be used"


# What a person does


def test_it_sends_work_once_however_often_the_form_is_sent(lead: PoolAgent, browser: Browser) -> None:
    page = page_of(browser, lead)
    found = re.search(r'name="request_id" value="(\w+)"', page)
    assert found is not None
    for _ in range(2):
        answer = browser.post(f"/admin/pool/{lead.pk}/", {"content": "Do *it*\r\nnow", "request_id": found[1]})
        assert answer.status_code == 302
    turn = Turn.objects.get()
    assert (turn.content, turn.source) == ("Do *it*\nnow", "dashboard")


def test_it_keeps_what_was_typed_where_the_work_is_refused(
    lead: PoolAgent, browser: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(turns, "LARGEST_MESSAGE", 10)
    page = shown(browser.post(f"/admin/pool/{lead.pk}/", {"content": "much too long", "request_id": "r"}))
    assert "CONTENT_TOO_LARGE" in page and "much too long</textarea>" in page
    assert "This field is required" in shown(browser.post(f"/admin/pool/{lead.pk}/", {"request_id": "r"}))
    assert not Turn.objects.exists()


def test_it_stops_a_turn_compacts_and_ends(lead: PoolAgent, browser: Browser) -> None:
    send("lead")
    turn = take()
    page = page_of(browser, lead)
    assert f'value="pool_cancel_run {turn.pk}"' in page and f'value="pool_destroy_agent {lead.pk}"' in page
    assert "was cancelled" in act(browser, do=f"pool_cancel_run {turn.pk}")
    assert (
        Turn.objects.get().cancel_requested_at is not None and "Stop" not in page_of(browser, lead).split("<aside")[0]
    )
    settle(turn, TurnStatus.CANCELLED)
    assert "was compacted, as far" in act(browser, do=f"pool_compact {lead.pk}")
    for _ in range(4):
        send("lead", "word " * 500)
        settle(take())
    act(browser, do=f"pool_compact {lead.pk}")
    assert "out of the context" in page_of(browser, lead)
    assert "pool_destroy_agent" in act(browser, do=f"pool_destroy_agent {lead.pk}"), "it is asked for once more"
    assert PoolAgent.objects.living().exists()
    assert "“lead” was ended" in act(browser, do=f"pool_destroy_agent {lead.pk}", asked="1")
    assert not PoolAgent.objects.living().exists()


# Elsewhere


def test_home_tells_what_runs_and_what_waits_in_the_pool(lead: PoolAgent, writer: PoolAgent, browser: Browser) -> None:
    send("writer", "Write the reader")
    send("lead", "Wait")
    take()
    page = shown(browser.get("/admin/"))
    assert "2</strong> living" in page
    assert "1</strong> at a turn" in page and "1</strong> waiting" in page
    row = page[page.index('href="/admin/agents/writer/"') :].split("</tr>")[0]
    assert "turn: Write the reader" in row and f"/admin/pool/{writer.pk}/" in row and "offline" not in row
    assert "1</strong> at work" in page and "0</strong> stuck" in page
    on_the_bus = shown(browser.get("/admin/agents/writer/"))
    assert f"/admin/pool/{writer.pk}/" in on_the_bus and "turn: Write the reader" in on_the_bus
    listed = shown(browser.get("/admin/coordination/agent/"))
    assert listed.count('data-tone="present">in the pool<') == 2 and "offline" not in listed
    assert 'class="node present"' in shown(browser.get("/admin/graph/"))


def test_search_finds_agents_of_the_pool(lead: PoolAgent, writer: PoolAgent, browser: Browser) -> None:
    page = shown(browser.get("/admin/find/?q=writ"))
    assert "Agents of the pool" in page and f"/admin/pool/{writer.pk}/" in page
    pool("pool_destroy_agent", agent_id="writer")
    assert "ended, sandboxed" in shown(browser.get("/admin/find/?q=writ")).lower()


def test_events_of_the_pool_are_sentences_that_lead_to_its_agents(lead: PoolAgent, browser: Browser) -> None:
    send("lead")
    settle(take())
    page = shown(browser.get("/admin/coordination/event/?stream=pool"))
    said = re.sub(r"\s+", " ", re.sub(r"<[^>]+>", "", page))
    for sentence in (
        "olga created lead in the pool, trusted",
        "olga sent lead work",
        "lead began a turn",
        "lead answered",
    ):
        assert sentence in said
    assert page.count(f"/admin/pool/{lead.pk}/") == 4


def test_a_call_shows_its_changes_and_a_result_why_it_was_not_allowed(browser: Browser, lead: PoolAgent) -> None:
    send("lead")
    turn = take()
    diff = {"path": "src/a.py", "old": HOSTILE, "new": "after all"}
    call = {"id": "1", "name": "Write a.py", "arguments": {"path": "src/a.py"}}
    say(turn, Role.ASSISTANT, "", meta={"tool_calls": [call]})
    more = {**call, "diffs": [diff, "none"]}
    say(turn, Role.TOOL, "refused", tool_call_id="1", meta={"call": more, "refused": f"outside {HOSTILE}"})
    page = browser.get(f"/admin/pool/{lead.pk}/").content.decode()
    assert "after all" in page and "The call in the end" in page and "Not allowed" in page
    assert "&lt;script&gt;alert(1)" in page and "<script>alert(1)" not in page
