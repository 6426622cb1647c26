"""Who names an agent that there is not is told which one was meant."""

from __future__ import annotations

import pytest

from coordination.selectors import nearest
from coordination.toolset import run
from nexus.core.operations.caller import Caller
from tests.conftest import Call

KNOWN = ["builder-1", "reviewer", "ana"]


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("Builder_1", "builder-1"),
        ("builder 1", "builder-1"),
        ("bilder-1", "builder-1"),
        ("buildder-1", "builder-1"),
        ("bulider-1", "builder-1"),
        ("builder-2", "builder-1"),
        ("reviewers", "reviewer"),
        ("viewer", None),
        ("ana", None),  # itself is no miss
        ("", None),
        ("-", None),
    ],
)
def test_it_finds_the_id_that_differs_in_a_letter(name: str, meant: str | None) -> None:
    assert nearest(name, KNOWN) == meant


@pytest.mark.django_db
def test_an_unknown_agent_is_an_error_that_names_the_near_one(call: Call) -> None:
    call("agent_register", agent_id="builder-1")
    error = run(Caller(transport="test"), "agent_get", {"agent_id": "bilder-1"})["error"]
    assert error["message"] == "No such agent: 'bilder-1'. Did you mean 'builder-1'?"
    assert error["details"] == {"agent": "bilder-1", "did_you_mean": "builder-1"}
    assert "did_you_mean" not in run(Caller(transport="test"), "agent_get", {"agent_id": "zoe"})["error"]["details"]
