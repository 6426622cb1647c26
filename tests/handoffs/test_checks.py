"""The commands of a project's nexus.toml, their review, and criteria that name them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from handoffs.checks import LARGEST
from handoffs.models import CheckRun
from tests.conftest import Call, does
from tests.handoffs.conftest import PYTHON, Offer


@pytest.fixture
def file(project: str) -> Path:
    return Path(project, "nexus.toml")


def listed(project: str) -> dict[str, Any]:
    data: dict[str, Any] = does("checks_list", project_root=project)["data"]
    return data


def approve(project: str, digest: str | None = None) -> dict[str, Any]:
    return does("checks_approve", project_root=project, digest=digest or listed(project)["digest"])


def test_an_operator_approves_what_was_seen(call: Call, project: str, file: Path, offer: Offer) -> None:
    file.write_text('[checks]\ntests = "make test"\nlint = { run = "ruff check", seconds = 60, network = true }\n')
    before = listed(project)
    assert [(check["name"], check["state"]) for check in before["checks"]] == [("lint", "new"), ("tests", "new")]

    approved = approve(project)["data"]

    assert (approved["reviewed"], {check["state"] for check in approved["checks"]}) == (True, {"reviewed"})
    assert offer(acceptance_criteria=["check:tests", "check:lint"])
    file.write_text('[checks]\ntests = "rm -rf ."\n')
    after = listed(project)
    assert not after["reviewed"]
    assert {check["name"]: check["state"] for check in after["checks"]} == {"lint": "gone", "tests": "changed"}
    assert "look at them again" in approve(project, before["digest"])["error"]["message"]
    file.write_text(f"# A comment changes no check.\n[other]\na = 1\n{_text(before)}")
    assert listed(project)["reviewed"]


def _text(known: dict[str, Any]) -> str:
    return '[checks]\ntests = "make test"\nlint = { run = "ruff check", seconds = 60, network = true }\n'


def test_an_agent_names_only_what_was_reviewed(refused: Call, team: None, project: str, file: Path) -> None:
    work = {"project_root": project, "from_agent_id": "ana", "target": PYTHON, "visibility": "public"}
    file.write_text('[checks]\ntests = "make test"\n')

    for criteria in (["check:tests"], ["check:rm -rf ."]):
        error = refused("handoff_create", **work, acceptance_criteria=criteria)
        assert (error["code"], "no reviewed check" in error["message"]) == ("VALIDATION_ERROR", True)
    approve(project)
    assert "Reviewed are: tests" in refused("handoff_create", **work, acceptance_criteria=["check:test"])["message"]


@pytest.mark.parametrize("path", ["/etc/passwd", "../other", "a/../../b", "a\nb", ".", ".git/config"])
def test_a_path_lies_in_the_project(refused: Call, team: None, project: str, path: str) -> None:
    work = {"project_root": project, "from_agent_id": "ana", "target": PYTHON, "visibility": "public"}

    error = refused("handoff_create", **work, acceptance_criteria=[f"unchanged:{path}"])

    assert "must be a path within the project" in error["message"]


def test_criteria_for_nexus_alone_name_no_verifier(call: Call, project: str, offer: Offer) -> None:
    def verifier(*criteria: str) -> Any:
        where = {"project_root": project, "handoff_id": offer(acceptance_criteria=[*criteria]), "agent_id": "ana"}
        return call("handoff_get", **where)["verifier"]

    assert verifier("file:README.md") is None
    assert verifier("file:README.md", "It reads well.") == "creator"
    assert verifier("check: the tests pass, says who reads them") == "creator"


def test_a_submitted_result_asks_for_its_checks_once(call: Call, project: str, offer: Offer) -> None:
    where = {"project_root": project, "handoff_id": offer(acceptance_criteria=["file:a"]), "agent_id": "bob"}
    call("handoff_claim", **where)

    assert call("handoff_complete", **where)["status"] == "SUBMITTED"

    assert [run["state"] for run in call("handoff_get", **where)["checks"]] == ["waiting"]
    assert CheckRun.objects.count() == 1


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (None, "no readable file"),
        ("checks = 1", "must be a table"),
        ("[checks]\ntests = 1", "malformed"),
        ('[checks]\n"a b" = "true"', "malformed"),
        ("[checks.tests]\nrun = ' '", "must be a command"),
        ("[checks.tests]\nrun = 'true'\nseconds = true", "must be 1 to"),
        ("[checks.tests]\nrun = 'true'\nseconds = 100000000", "must be 1 to"),
        ("[checks.tests]\nrun = 'true'\nshell = 'sh'", "malformed"),
        ("[checks", "is not TOML"),
        ("a = " + "[" * 30_000, "is not TOML"),
        ("#" * (LARGEST + 1), "larger than"),
        ("[checks]\n" + "".join(f"c{number} = 'true'\n" for number in range(51)), "at most 50"),
    ],
)
def test_it_says_what_is_wrong_with_the_file(
    db: None, project: str, file: Path, content: str | None, problem: str
) -> None:
    if content is not None:
        file.write_text(content)

    assert problem in listed(project)["problem"]
    assert not approve(project, "0" * 64)["ok"]


@pytest.mark.parametrize("kind", ["fifo", "link", "directory"])
def test_it_waits_for_no_pipe_and_follows_no_link(db: None, project: str, file: Path, kind: str) -> None:
    if kind == "fifo":
        os.mkfifo(file)
    elif kind == "link":
        file.symlink_to("/etc/hostname")
    else:
        file.mkdir()

    assert "no readable file" in listed(project)["problem"]
