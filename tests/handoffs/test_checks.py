"""The commands of a project's nexus.toml, their review, and criteria that name them."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command
from django.test import Client

from handoffs.checks import LARGEST
from handoffs.models import CheckRun
from tests.conftest import Call, does
from tests.handoffs.conftest import PYTHON, Offer
from tests.pages import LOCAL, shown


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
    file.write_text('\ufeff[checks]\ntests = "rm -rf ."\n')  # with a byte-order mark, as some editors write it
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


HIDING = 'echo "' + "x " * 300 + "\u202e" + '"\nrm -rf .'


@pytest.mark.parametrize("answer", ["n", "y"])
def test_the_command_shows_all_that_it_approves_and_asks(
    committed: None, project: str, file: Path, answer: str, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    file.write_text(f"[checks]\ntests = {{ run = {json.dumps(HIDING)}, seconds = 60, network = true }}\n")
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    monkeypatch.setattr("builtins.input", lambda question: answer)
    digest = listed(project)["digest"]
    with pytest.raises(SystemExit, match="0"):
        call_command("checks", "list", "--project", project)
    text = capsys.readouterr().out
    assert f"nexus checks approve {digest} --project {project}" in text and "  60       network  new\n" in text
    with pytest.raises(SystemExit, match="0"):
        call_command("checks", "approve", "--project", project)
    text = capsys.readouterr().out
    assert "tests: new, 60 seconds, network\n" in text and 'x x ⟨U+202E⟩"\n    rm -rf .\n' in text and digest in text
    assert listed(project)["reviewed"] is (answer == "y")


@pytest.mark.parametrize("flags", [["--yes"], ["DIGEST"], ["--yes", "--json"]])
def test_the_command_asks_nothing_where_it_is_told_so(
    committed: None, project: str, file: Path, flags: list[str]
) -> None:
    file.write_text('[checks]\ntests = "make test"\n')
    with pytest.raises(SystemExit, match="1"):  # nobody is there to ask
        call_command("checks", "approve", "--project", project)
    digest = listed(project)["digest"]
    with pytest.raises(SystemExit, match="0"):
        call_command("checks", "approve", "--project", project, *(flag.replace("DIGEST", digest) for flag in flags))
    assert listed(project)["reviewed"]


def test_the_page_shows_what_it_approves(committed: None, call: Call, project: str, file: Path) -> None:
    browser = Client(headers=LOCAL)
    workspace = call("workspace_resolve", project_root=project)["workspace_id"]
    assert "No project here names checks" in shown(browser.get("/admin/checks/"))
    assert "no readable file" in shown(browser.get(f"/admin/checks/?workspace={workspace}"))
    file.write_text(f"[checks]\ntests = {json.dumps(HIDING)}\n")
    page = shown(browser.get(f"/admin/checks/?workspace={workspace}"))
    assert project in page and "⟨U+202E⟩" in page and "rm -rf ." in page and "not approved" in page
    form = {"project_root": project, "digest": listed(project)["digest"]}
    file.write_text('[checks]\ntests = "others"\n')
    assert "are others now" in shown(browser.post(f"/admin/checks/?workspace={workspace}", form, follow=True))
    assert not listed(project)["reviewed"]
    form["digest"] = listed(project)["digest"]
    page = shown(browser.post(f"/admin/checks/?workspace={workspace}", form, follow=True))
    assert "The checks are approved." in page and "local approved these" in re.sub("<[^>]+>", "", page)


def test_the_page_and_the_command_show_local_files(
    committed: None, call: Call, project: str, file: Path, capsys: Any
) -> None:
    call("workspace_resolve", project_root=project)
    file.write_text('[worktrees]\ncopy = [".env"]\nsymlink = ["node_modules"]\n')
    page = shown(Client(headers=LOCAL).get("/admin/checks/"))
    assert "<code>.env</code>" in page and "<code>node_modules</code>" in page
    with pytest.raises(SystemExit, match="0"):
        call_command("checks", "approve", "--project", project, "--yes")
    text = capsys.readouterr().out
    assert "Each worktree gets a copy of .env\nEach worktree gets a link to node_modules\n" in text
    before = listed(project)
    assert (before["reviewed"], before["copy"], before["symlink"]) == (True, [".env"], ["node_modules"])
    file.write_text('[worktrees]\nsymlink = [".env", "node_modules"]\n')
    assert not listed(project)["reviewed"]
    assert "look at them again" in approve(project, before["digest"])["error"]["message"]


@pytest.mark.parametrize("kind", ["fifo", "link", "directory"])
def test_it_waits_for_no_pipe_and_follows_no_link(db: None, project: str, file: Path, kind: str) -> None:
    if kind == "fifo":
        os.mkfifo(file)
    elif kind == "link":
        file.symlink_to("/etc/hostname")
    else:
        file.mkdir()

    assert "no readable file" in listed(project)["problem"]
