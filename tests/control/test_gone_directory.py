"""An agent whose directory is gone, before a turn or in the middle of one: the turn fails and says so, whatever takes
it."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import psutil
import pytest

from coordination.models import Event
from nexus.control.models import Entry, Question, Role
from nexus.control.runners import sandbox
from nexus.control.worker.scheduling import Worker
from nexus.core.config import CoreSettings
from nexus.core.waiting import READERS, WRITERS, in_thread, waiter
from tests.control.openai_server import Handler, calls, says, serving
from tests.control.playing import pool
from tests.control.pool import asend, create, ended, said
from tests.control.test_acp import AGENT

RUNNERS = """
[runners.acp]
kind = "acp"
command = [{python}, {agent}]
read_paths = [{root}]
[runners.model]
kind = "model"
model = "openai:small"
base_url = "{url}"
[runners.stage]
kind = "rehearsal"
"""
ERROR = "No such file or directory"
Configured = Callable[..., None]


def write_runners(url: str = "http://127.0.0.1:9") -> None:
    words = {"python": sys.executable, "agent": str(AGENT), "root": str(AGENT.parents[2])}
    home = CoreSettings.current().home
    home.mkdir(exist_ok=True)
    filled = RUNNERS.format(url=url, **{name: json.dumps(word) for name, word in words.items()})
    (home / "runners.toml").write_text(filled)


@pytest.fixture
def place(tmp_path: Path, worker: Worker, configure: Configured) -> Path:
    """The directory of an agent; where there are runners of every kind."""
    configure(home=tmp_path / "home")
    write_runners()
    place = tmp_path / "place"
    place.mkdir()
    (place / "notes").touch()
    return place


async def made(runner: str, place: Path) -> None:
    more = {"runner": runner, "cwd": str(place), "write_paths": [str(place)]}
    await in_thread(WRITERS, partial(create, "ann", **more))


async def is_told(turn_id: str, place: Path) -> None:
    """On the turn, which the call tells of, and by an event; nothing is made anew where the directory was."""
    turn, why = await ended(turn_id), f"the agent's directory, {place}, is not there any more"
    assert (turn.status, turn.why) == ("failed", why)
    told = await in_thread(READERS, lambda: Event.objects.get(type="turn.failed").payload)
    assert (told["request_id"], told["why"]) == (turn.request_id, why)
    assert not place.exists()
    lines = [each.as_dict(["cmdline"], [])["cmdline"] for each in psutil.Process().children(recursive=True)]
    assert not any(str(AGENT) in line for line in lines)


@pytest.mark.parametrize("runner", ["acp", "model", "stage"])
async def test_a_turn_fails_at_once_whose_directory_is_gone(place: Path, runner: str) -> None:
    await made(runner, place)
    shutil.rmtree(place)
    await is_told(await asend("ann", "hello"), place)
    assert await said("ann") == ["hello"], "nobody was asked"


@pytest.mark.usefixtures("starts_processes")
@pytest.mark.parametrize("confined", [True, False])
async def test_an_agent_process_is_refused_each_thing_and_its_turn_fails(
    place: Path, confined: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not confined:
        monkeypatch.setattr(sandbox, "state", lambda: sandbox.SandboxState(False, "the test has none"))
    elif not sandbox.state().works:
        pytest.skip("no sandbox on this machine")
    await made("acp", place)

    def begun() -> bool:
        return Entry.objects.filter(role=Role.ASSISTANT).exists()

    async with waiter().park(lambda event: event.type == "turn.said") as parked:
        turn_id = await asend("ann", "watch notes")
        while not await in_thread(READERS, begun):
            await parked.wait(5)
    shutil.rmtree(place)
    await is_told(turn_id, place)
    read, _, ran = "\n".join((await said("ann"))[2:]).partition("; ")
    assert "Resource not found" in read and ("is not there any more" if confined else "could not be started") in ran


@pytest.mark.usefixtures("starts_processes")
async def test_a_model_is_told_by_each_tool_and_its_turn_fails(place: Path) -> None:
    def vanishes(handler: Handler) -> None:
        shutil.rmtree(place)
        files = ("read_file", {"path": "notes"}), ("write_file", {"path": "new", "content": "x"})
        searches = ("glob", {"pattern": "*"}), ("grep", {"pattern": "x"})
        calls(*files, ("list_directory", {}), *searches)(handler)

    with serving(vanishes, says("I did what I could.")) as (_server, url):
        write_runners(url)
        await made("model", place)
        await is_told(await asend("ann", "Work."), place)
    *_, read, write, listed, found, matched, last = await said("ann")
    for result in (read, write, listed, found, matched):
        assert result.startswith("Error: ") and ERROR in result
    assert last == "I did what I could.", "it is kept"


async def test_an_answer_from_a_script_counts_as_little(place: Path, worker: Worker) -> None:
    file, step = CoreSettings.current().home / "runners.toml", '{ ask = { kind = "question", title = "Go on?" } }'
    file.write_text(f'[runners.stage]\nkind = "rehearsal"\nscript = [{step}]\n')
    await made("stage", place)
    async with waiter().park(lambda event: event.type == "question.asked") as parked:
        turn_id = await asend("ann")
        while not await in_thread(READERS, Question.objects.exists):
            await parked.wait(5)
    shutil.rmtree(place)
    await in_thread(WRITERS, answer)
    await is_told(turn_id, place)


def answer() -> None:
    """What a person says to the one question that there is."""
    pool("pool_answer", question_id=Question.objects.get().pk, words="yes")
