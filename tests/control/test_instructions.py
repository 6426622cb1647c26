"""Instructions for agents, from the files of operators and projects."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path

import pytest

from nexus.control.agents import transcript
from nexus.control.models import PoolAgent
from nexus.control.runners import instructions
from nexus.control.runners.instructions import CUT, MOST
from nexus.control.worker.scheduling import Worker
from nexus.core.waiting import READERS, WRITERS, in_thread
from tests.control.openai_server import says, serving
from tests.control.playing import at_hand, pool, refused
from tests.control.pool import asend, ended
from tests.control.test_gone_directory import made, place, write_runners

__all__ = ["at_hand", "place"]


@pytest.fixture
def project(db: None, at_hand: Path) -> Path:
    """A directory two levels below one that is common to several projects."""
    place = at_hand / "team" / "project"
    place.mkdir(parents=True)
    return place


def texts(cwd: Path) -> list[str]:
    """The instructions for an agent in a directory, without their headings."""
    parts = instructions.read_instructions(str(cwd)).split("Instructions from ")[1:]
    return [part.partition(":\n\n")[2].strip() for part in parts]


def test_they_go_from_the_home_over_the_directories_above_to_the_project(project: Path, at_hand: Path) -> None:
    assert instructions.read_instructions(str(project)) == ""
    home = at_hand.parent / "home"
    for level, text in ((home, "everywhere"), (at_hand, "above"), (project, "here"), (project / "docs", "below")):
        level.mkdir(exist_ok=True)
        (level / "NEXUS.md").write_text(f"{text}\n")
    (project.parent / "AGENTS.md").write_text("the team")
    (project / "AGENTS.md").write_text("not this")
    assert texts(project) == ["everywhere", "above", "the team", "here"]
    assert texts(project / "docs")[-2:] == ["here", "below"]
    (project / "NEXUS.md").write_text("")
    assert texts(project) == ["everywhere", "above", "the team"], "an empty one says nothing, and counts"


def test_links_lead_to_files_of_the_same_directory_alone(project: Path, at_hand: Path) -> None:
    secret = at_hand / "secret"
    secret.write_text("secret")
    (project / "AGENTS.md").write_text("here")
    (project / "NEXUS.md").symlink_to("AGENTS.md")
    assert texts(project) == ["here"]
    for target in (secret, "../../secret", "/dev/zero", "/proc/self/environ", project / "NEXUS.md", project):
        (project / "NEXUS.md").unlink()
        (project / "NEXUS.md").symlink_to(target)
        assert texts(project) == ["here"]
    home = at_hand.parent / "home"
    (home / "NEXUS.md").symlink_to(secret)
    (project.parent / "NEXUS.md").symlink_to(secret)
    assert texts(project) == ["here"]


def test_what_is_no_file_or_no_text_holds_nobody_up(project: Path) -> None:
    os.mkfifo(project / "NEXUS.md")  # to open it would wait for a writer
    (project / "AGENTS.md").mkdir()
    assert texts(project) == []
    (project / "NEXUS.md").unlink()
    (project / "NEXUS.md").write_bytes(b"\xff nul \0 end")
    assert texts(project) == ["\N{REPLACEMENT CHARACTER} nul \N{REPLACEMENT CHARACTER} end"]


def test_what_others_may_have_written_above_the_project_is_left_out(project: Path) -> None:
    above = project.parent / "NEXUS.md"
    above.write_text("above")
    above.chmod(0o646)
    assert texts(project) == []
    above.chmod(0o644)
    assert texts(project) == ["above"]
    if os.geteuid() == 0:
        os.chown(above, 65_534, 65_534)
        assert texts(project) == []


def test_together_they_are_bounded_and_the_nearest_come_first(project: Path) -> None:
    (project.parent / "NEXUS.md").write_text("far")
    with (project / "NEXUS.md").open("w") as file:
        file.truncate(2**40)  # of zeros, which no disk holds
    [text] = texts(project)
    assert text.endswith(CUT) and len(text) == MOST + len(f"\n{CUT}")


SMALL = """
[runners.small]
kind = "model"
model = "openai:small"
base_url = "http://127.0.0.1:9"
context_tokens = {}
reply_tokens = 1
"""


def test_they_count_as_the_system_prompt_before_and_after_a_summary(project: Path, at_hand: Path) -> None:
    (at_hand.parent / "home" / "runners.toml").write_text(SMALL.format(100_000))
    (project / "NEXUS.md").write_text("Be brief. " * 100)
    pool("pool_create_agent", agent_id="ann", cwd=str(project))
    agent = PoolAgent.objects.get()
    assert agent.instruction_tokens == transcript.estimate(instructions.read_instructions(str(project))) > 250
    assert pool("pool_get_context", agent_id="ann")["system_prompt"] is True
    tokens = pool("pool_get_tokens", agent_id="ann")
    assert tokens["system"] > agent.instruction_tokens and tokens["tools"] > 0 == tokens["messages"]
    assert tokens["total"] == tokens["system"] + tokens["tools"] == tokens["available"] - tokens["remaining"]


def test_an_agent_whose_context_holds_no_more_than_them_is_not_made(project: Path, at_hand: Path) -> None:
    (at_hand.parent / "home" / "runners.toml").write_text(SMALL.format(30_000))
    (project / "NEXUS.md").write_text("x" * MOST)
    error = refused("pool_create_agent", agent_id="ann", cwd=str(project))
    assert (error["code"], error["details"]["field"]) == ("VALIDATION_ERROR", "model")
    assert "context_tokens" in error["message"] and not PoolAgent.objects.exists()
    (project / "NEXUS.md").unlink()
    pool("pool_create_agent", agent_id="ann", cwd=str(project))


@pytest.mark.usefixtures("starts_processes")
async def test_a_model_gets_them_with_each_turn_as_they_are_then(worker: Worker, place: Path) -> None:
    with serving(says("One."), says("Two.")) as (server, url):
        write_runners(url)
        await in_thread(WRITERS, partial((place / "NEXUS.md").write_text, "Speak of apples."))
        await made("model", place)
        await ended(await asend("ann"))
        await in_thread(WRITERS, partial((place / "NEXUS.md").write_text, "Speak of pears, and of pears alone."))
        await ended(await asend("ann"))
    first, second = (asked["messages"][0]["content"] for asked in server.asked)
    assert "You are ann" in first and f"{place}/NEXUS.md:\n\nSpeak of apples." in first
    assert "of pears alone" in second and "apples" not in second
    agent = await in_thread(READERS, PoolAgent.objects.get)
    assert agent.instruction_tokens == transcript.estimate(instructions_of(place))


def instructions_of(place: Path) -> str:
    return f"Instructions from {place}/NEXUS.md:\n\nSpeak of pears, and of pears alone."


@pytest.mark.usefixtures("starts_processes")
async def test_an_agent_process_gets_them_at_the_begin_of_its_session(worker: Worker, place: Path) -> None:
    await in_thread(WRITERS, partial((place / "AGENTS.md").write_text, "tell it"))
    await made("acp", place)
    turn = await ended(await asend("ann", "repeat"))
    assert turn.answer == f"Instructions from {place}/AGENTS.md:\n\ntell it\n\nNow:\n\nrepeat"
