"""What agents and models do to a hub that they should not: the call tells it, an event tells it, others are answered
meanwhile, nothing of it is left, and the agent takes its next turn."""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import wait
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from tests.acceptance.hub import ROOT, START_SECONDS
from tests.acceptance.pool import Pool, until
from tests.conftest import Furnish
from tests.control.openai_server import Server, hangs_up, says, serving

AGENT = ROOT / "tests" / "control" / "acp_agent.py"
WELL_BEHAVED = [sys.executable, str(AGENT.with_name("acp_plain.py"))]
BETWEEN_SECONDS = 0.2  # two turns of the other agent: without a pause they would take what a runner needs to start
MARK = "left-by-a-hostile-runner"  # in the command line of what agents leave behind


@dataclass(frozen=True)
class Acp:
    """An agent that is a process."""

    prompt: str
    why: str
    command: Sequence[str] = (sys.executable, str(AGENT))
    turn_seconds: int = 3_600

    def table(self, name: str) -> str:
        """Its runner."""
        return (
            f'[runners.{name}]\nkind = "acp"\ncommand = {json.dumps([*self.command])}\n'
            f"read_paths = [{json.dumps(str(ROOT))}]\nturn_seconds = {self.turn_seconds}\n"
        )


MENDED = Acp("hello", "", command=WELL_BEHAVED)
PROCESSES = {  # that do not end, or leave some behind; tests/control/test_acp.py has every way to fail
    "is-deaf": Acp("ignore", "turn_seconds", turn_seconds=2),
    "forks": Acp(f"forks {MARK}", "exit code 4"),
}


def model(name: str, url: str) -> str:
    """The runner of a model."""
    return (
        f'[runners.{name}]\nkind = "model"\nmodel = "openai:small"\nbase_url = "{url}"\n'
        "retries = 0\nrun_retries = 0\nmax_iterations = 3\n"
    )


@dataclass
class Stage:
    """A pool, a model for it, and the runners that it knows."""

    pool: Pool
    server: Server
    url: str
    scratch: Path  # where turns have their directories
    tables: dict[str, str] = field(default_factory=dict)

    def runs(self, name: str, table: str) -> None:
        """From here on the runner is this."""
        self.tables[name] = table
        (self.pool.hub.home / "runners.toml").write_text("\n".join(self.tables.values()))

    @contextmanager
    def agent(self, agent_id: str, runner: str, cwd: Path) -> Iterator[None]:
        """An agent, inside of the block."""
        self.pool.result("create_agent", agent_id=agent_id, model=runner, cwd=str(cwd))
        try:
            yield
        finally:
            self.pool.result("destroy_agent", agent_id=agent_id)

    def send(self, agent_id: str, prompt: str, request_id: str) -> dict[str, Any]:
        """What a call comes to, while another agent has its turns."""
        sent = self.pool.threads.submit(self.pool.send, agent_id, prompt, request_id=request_id)
        while not wait((sent,), BETWEEN_SECONDS).done:
            assert self.pool.send("bystander", "me")["result"]["content"].endswith("went on with me")
        return sent.result()

    def fails(self, agent_id: str, prompt: str, why: str) -> None:
        """The call tells the failure, and so does an event; nothing is left of the turn."""
        error: Any = self.send(agent_id, prompt, "bad").get("error")
        assert error is not None and (error["code"], error["data"]["code"]) == (-32002, "TURN_FAILED"), error
        details = error["data"]["details"]
        assert why in details["why"] and (details["agent_id"], details["request_id"]) == (agent_id, "bad")
        told = newest(self.pool, "turn.failed")
        assert (told["agent_id"], told["request_id"]) == (agent_id, "bad") and why in told["why"]
        self.is_clean()

    def answers(self, agent_id: str, prompt: str, answer: str) -> None:
        """It takes a turn as it should."""
        assert self.send(agent_id, prompt, "good").get("result", {}).get("content") == answer
        self.is_clean()

    def is_clean(self) -> None:
        """No process is left but those that keep the pool, and no directory of a turn."""
        worker = self.pool.worker()
        own = {worker, worker.parent()}
        until(lambda: set(psutil.Process(self.pool.hub.process.pid).children(recursive=True)) <= own)
        assert worker == self.pool.worker(), "it did not cost the others their turns"
        until(lambda: not list(self.scratch.iterdir()))


def newest(pool: Pool, type: str) -> dict[str, Any]:
    """What the newest event of a type tells; nothing where there is none."""
    url, headers = f"{pool.hub.url}/api/v1/events?type={type}", {"authorization": f"Bearer {pool.token}"}
    rows = httpx.get(url, headers=headers, timeout=START_SECONDS).json()["data"]["results"]
    told: dict[str, Any] = rows[0]["payload"] if rows else {}
    return told


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory, furnish: Furnish) -> Iterator[Stage]:
    """One hub for all of them."""
    home = furnish(tmp_path_factory.mktemp("pool") / "home")
    with (
        serving(says("Hello")) as (server, url),
        tempfile.TemporaryDirectory() as scratch,  # short: a socket lies in it
        pytest.MonkeyPatch.context() as patch,
    ):
        patch.setenv("TMPDIR", scratch)
        pool = Pool(home, runners="")
        stage = Stage(pool, server, url, Path(scratch))
        stage.runs(
            "bystanding", '[runners.bystanding]\nkind = "rehearsal"\nscript = [{ say = "went on with {content}" }]\n'
        )
        try:
            with stage.agent("bystander", "bystanding", home):
                yield stage
        finally:
            pool.close()
            until(lambda: not pool.left())


@pytest.mark.parametrize("what", PROCESSES)
def test_a_process_that_misbehaves(stage: Stage, tmp_path: Path, what: str) -> None:
    case = PROCESSES[what]
    stage.runs(what, case.table(what))
    with stage.agent(what, what, tmp_path):
        stage.fails(what, case.prompt, case.why)
        stage.runs(what, MENDED.table(what))
        stage.answers(what, "hello", "Hello")


def test_a_model_that_misbehaves(stage: Stage, tmp_path: Path) -> None:
    stage.runs("model", model("model", stage.url))  # tests/control/test_model.py has every way to fail
    with stage.agent("model", "model", tmp_path):
        stage.server.replies = [hangs_up]
        stage.fails("model", "Work.", "the model")
        stage.server.replies = [says("Hello")]
        stage.answers("model", "And now?", "Hello")


def test_a_runner_that_is_taken_out_of_the_file(stage: Stage, tmp_path: Path) -> None:
    stage.runs("gone", MENDED.table("gone"))
    with stage.agent("gone", "gone", tmp_path):
        stage.runs("gone", "")
        stage.fails("gone", "hello", "There is no runner 'gone' in runners.toml")
        stage.runs("gone", MENDED.table("gone"))
        stage.answers("gone", "hello", "Hello")
        stage.runs("gone", "nonsense")  # what was read well before holds on
        assert stage.send("gone", "hello", "again")["result"]["content"] == "Hello"
        stage.runs("gone", "")
