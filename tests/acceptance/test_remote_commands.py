"""Short commands that the hub runs: what they say and do is the same as without it."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from tests.acceptance.hub import START_SECONDS, Hub
from tests.acceptance.processes import ROOT, calls_of, environment, nexus

LETTER = ("--subject", "s", "--body", "b")


@pytest.fixture
def team(hub: Hub) -> Hub:
    """A hub with an agent."""
    hub.call("agent_register", agent_id="ann")
    return hub


@pytest.mark.parametrize(
    "words",
    [
        ["status"],
        ["status", "--json"],
        ["inbox", "--agent", "ann"],
        ["inbox", "--agent", "nobody"],
        ["inbox", "ack", "msg-of-nobody"],
        ["inbox", "history", "--parked"],
        ["send", "--to", "ann"],
        ["send", "--to", "ann", *LETTER, "--project", "/nowhere"],
        ["send", "--to", "ann", *LETTER, "--sender", "nobody"],
        ["inbox", "--help"],
        ["status", "--busy-timeout-ms", "soon"],
    ],
    ids=" ".join,
)
def test_it_says_what_the_command_says_without_a_hub(team: Hub, words: list[str]) -> None:
    by_hub, by_itself = nexus(team.home, *words), nexus(team.home, *words, NEXUS_STANDALONE="1")
    assert by_hub.returncode == by_itself.returncode
    assert by_hub.stderr == by_itself.stderr
    # The store grows, and time passes.
    still = [re.sub(r"[0-9.]+ [kM]B|[0-9]+ (s|min) ago|\d+", "", text) for text in (by_hub.stdout, by_itself.stdout)]
    assert still[0] == still[1]


def test_the_hub_runs_it_where_it_is_asked_as_the_operator_of_pages(team: Hub, project: str) -> None:
    before = calls_of(team, "message_create")
    words = ["send", "--to", "ann", *LETTER, "--json"]
    environ = environment(team.home, LOGNAME="olga")  # which anybody may set
    ran = subprocess.run(
        [sys.executable, str(ROOT / "manage.py"), *words],
        cwd=project,
        env=environ,
        capture_output=True,
        text=True,
        timeout=START_SECONDS,
    )
    assert ran.returncode == 0 and json.loads(ran.stdout)["recipients"] == ["ann"], ran.stderr
    assert calls_of(team, "message_create") == before + 1
    roots = [each["root_realpath"] for each in team.call("workspace_list")["workspaces"]]
    assert str(Path(project).resolve()) in roots
    acted = httpx.get(f"{team.url}/api/v1/events", params={"type": "operator.acted"}, timeout=START_SECONDS).json()
    assert "olga" not in json.dumps(acted) and '"operator": "local"' in json.dumps(acted)


def test_a_text_from_standard_input_is_read_by_the_process_itself(team: Hub) -> None:
    before = calls_of(team, "message_create")
    ran = subprocess.run(
        [sys.executable, str(ROOT / "manage.py"), "send", "--to", "ann", "--subject", "s", "--body", "-"],
        env=environment(team.home),
        input="typed",
        capture_output=True,
        text=True,
        timeout=START_SECONDS,
    )
    assert ran.returncode == 0, ran.stderr
    assert calls_of(team, "message_create") == before
    assert "typed" in nexus(team.home, "inbox", "--agent", "ann", "--full").stdout
