"""What an idle pool costs: nothing is asked of a model to look whether there is work."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from functools import partial
from pathlib import Path

import pytest
import time_machine

from coordination.toolset import run
from nexus.control import maintenance
from nexus.control.agents import wake_kinds
from nexus.control.agents.waking import WakeWatch
from nexus.control.models import HUB, Turn
from nexus.control.runners_file import FILE
from nexus.control.worker.scheduling import Worker
from nexus.core.clock import now
from nexus.core.waiting import READERS, SLOW, WRITERS, in_thread
from tests.conftest import LOCAL
from tests.control.openai_server import says, serving
from tests.control.pool import at_work, create, ended

AGENTS = 3
RUNNER = '[runners.small]\nkind = "model"\nmodel = "openai:small"\nbase_url = "{url}"\n'


@pytest.mark.usefixtures("starts_processes")
async def test_agents_that_idle_for_an_hour_ask_their_model_nothing(
    committed: None, project: str, tmp_path: Path, configure: Callable[..., None]
) -> None:
    """A worker is at work, and does every ten minutes all that it does at intervals."""
    configure(control=True, home=tmp_path / "home")
    (tmp_path / "home").mkdir()
    wakes = sorted(wake_kinds.kind_titles())

    def begin() -> None:
        assert run(LOCAL, "agent_register", {"agent_id": "ann"})["ok"]
        for number in range(AGENTS):
            create(f"idle-{number}", cwd=str(tmp_path), runner="small", wake_on=wakes)

    def send() -> None:
        target = {"strategy": "direct", "agent_id": "idle-2"}
        said = {"from_agent_id": "ann", "subject": "Look", "body": "Read this.", "target": target}
        assert run(LOCAL, "message_create", {"project_root": project, **said})["ok"]

    with serving(says("Read.", usage=(100, 5))) as (provider, url):
        (tmp_path / "home" / FILE).write_text(RUNNER.format(url=url))
        with time_machine.travel(now(), tick=True) as clock:
            async with at_work(Worker(now()), at_once=True) as worker:  # the loop's clock is set, too
                await in_thread(WRITERS, begin)
                for _ in range(6):
                    clock.shift(timedelta(minutes=10))
                    await WakeWatch().look()  # a new one looks for items of every kind
                    await worker._claim()
                    await in_thread(SLOW, partial(maintenance.compact_full, HUB))
                assert provider.asked == [] and not await in_thread(READERS, Turn.objects.exists)
                await in_thread(WRITERS, send)
                await WakeWatch().look()
                turn = await in_thread(READERS, Turn.objects.get)
                turn = await ended(turn.pk)
    assert (turn.status, turn.answer, len(provider.asked)) == ("done", "Read.", 1), "mail costs one call"
    assert (turn.input_tokens, turn.output_tokens) == (100, 5)
