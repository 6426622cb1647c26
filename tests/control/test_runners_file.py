"""`runners.toml` that is made wrong while a server runs: what it said before holds on, and what is wrong is told."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from django.core.management import call_command

from nexus.control.maintenance import CHECKS
from nexus.control.models import PoolAgent
from nexus.control.runners_file import describe, read_runners, runners
from nexus.control.worker.scheduling import Worker
from nexus.control.worker.supervision import admit
from nexus.core.operations.errors import NexusError
from nexus.core.waiting import WRITERS, in_thread
from tests.control.playing import refused
from tests.control.pool import acreate, asend, ended
from tests.control.test_housekeeping import Looked

WELL = '[runners.stage]\nkind = "rehearsal"\nscript = [{ say = "from the stage" }]\n'
WRONG = '[runners.stage]\nkind = "rehearsal"\nnonsense\n'
WHY = r"runners\.toml is no TOML: .*line 3"


@pytest.fixture
def file(tmp_path: Path, configure: Callable[..., None]) -> Path:
    configure(control=True, home=tmp_path)
    return tmp_path / "runners.toml"


@pytest.fixture
def wrong(file: Path) -> Path:
    file.write_text(WRONG)
    return file


async def test_its_agents_take_their_turns_as_before(worker: Worker, file: Path) -> None:
    file.write_text(WELL)
    await acreate("ann")
    assert (await ended(await asend("ann"))).status == "done"
    for content in (WRONG, '[runners.stage]\nkind = "none"\n', "\udcff", f'default = ["stage"]\n{WELL}'):
        file.write_text(content, errors="surrogateescape")
        assert runners().default == "stage"
        turn = await ended(await asend("ann"))
        assert turn.status == "done", turn.why
    file.write_text("\ufeff" + WELL.replace("stage", "scene"))  # with a byte-order mark, as some editors write it
    assert runners().default == "scene"


def test_a_default_that_is_no_runners_name_is_told(file: Path) -> None:
    for default in ["1", "['stage']", "{ stage = 1 }", "'other'", "true"]:
        file.write_text(f"default = {default}\n{WELL}")
        with pytest.raises(NexusError, match="as default"):
            read_runners(file)


def test_a_step_that_fails_says_why(file: Path) -> None:
    file.write_text('[runners.stage]\nkind = "rehearsal"\nscript = [{ fail = "" }]\n')
    with pytest.raises(NexusError, match="at least 1 character"):
        read_runners(file)


@pytest.mark.parametrize(
    ("name", "fields", "why"),
    [("nexus", "", "does not begin with nexus"), ('"a b"', "", "letters, digits"), ("github", "url = 1", "url")],
)
def test_an_mcp_server_that_is_wrong_is_told(file: Path, name: str, fields: str, why: str) -> None:
    server = f'[runners.ann.mcp_servers.{name}]\ncommand = ["server"]\n{fields}\n'
    file.write_text(f'[runners.ann]\nkind = "acp"\ncommand = ["agent"]\n{server}')
    with pytest.raises(NexusError, match=rf"runners\.ann\.mcp_servers.*{why}"):
        read_runners(file)


def test_what_is_no_file_is_not_read(file: Path) -> None:
    file.symlink_to("/dev/null")
    with pytest.raises(NexusError, match="is no file"):
        read_runners(file)


def test_a_server_and_a_worker_that_start_anew_say_why_they_do_not(
    wrong: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(NexusError, match=WHY) as refused:
        admit()
    assert refused.value.code == "CONFIG_ERROR" and list(wrong.parent.iterdir()) == [wrong], "no token is made"
    with pytest.raises(SystemExit) as exit:
        call_command("run_pool", since="2026-01-01T00:00:00Z")
    said = capsys.readouterr().err
    assert exit.value.code == 1 and "CONFIG_ERROR" in said and "is no TOML" in said and "line 3" in said


def test_the_command_tells_what_is_wrong_and_that_a_server_goes_on(
    db: None, wrong: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as exit:
        call_command("runners", "list")
    said = capsys.readouterr().err
    assert exit.value.code == 1 and "line 3" in said and "goes on with what the file said before" in said


def doctor(home: Path) -> list[str]:
    """What `nexus doctor` finds in the runners' file."""
    check = {check.name: check for check in CHECKS}["runners"].check
    return [finding.problem for finding in check(Looked(home))]


def test_doctor_tells_what_is_wrong(file: Path) -> None:
    file.write_text(WELL)
    assert doctor(file.parent) == []
    file.write_text(WRONG)
    (problem,) = doctor(file.parent)
    assert "is no TOML" in problem and "line 3" in problem


@pytest.mark.parametrize("default", ["", 'default = "there"\n'])
async def test_a_runner_of_the_kind_ssh_is_read_and_its_turns_say_what_takes_its_place(
    worker: Worker, file: Path, default: str
) -> None:
    file.write_text(WELL)
    for name, runner in (("ann", "there"), ("bob", "stage")):
        await acreate(name)
        rows = PoolAgent.objects.filter(agent_id=name)
        await in_thread(WRITERS, partial(rows.update, runner=runner))
    file.write_text(f'{default}[runners.there]\nkind = "ssh"\nhost = "builder"\npreset = "none"\n{WELL}')
    turn = await ended(await asend("ann"))
    assert turn.status == "failed" and "no run starts on there: start `nexus run-pool`" in (turn.why or "")
    (problem,) = doctor(file.parent)
    assert problem.startswith("No runner has the kind ssh any more") and problem == describe(runners())
    error = await in_thread(WRITERS, lambda: refused("pool_create_agent", agent_id="cyd"))
    assert (error["code"], error["message"]) == ("VALIDATION_ERROR", problem)
    assert "from the stage" in ((await ended(await asend("bob"))).answer or "")


async def test_an_agent_that_lived_on_a_host_of_ssh_takes_no_turn(worker: Worker, file: Path) -> None:
    await acreate("ann")
    await in_thread(WRITERS, lambda: PoolAgent.objects.update(host="builder"))
    turn = await ended(await asend("ann"))
    assert (
        turn.status == "failed" and "is on builder" in (turn.why or "") and "create the agent again" in (turn.why or "")
    )
