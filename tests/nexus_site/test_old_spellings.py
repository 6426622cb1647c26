"""Command lines as README and docs of the last release had them: they are taken, with a line that says the new one."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from docs import make_reference
from nexus.hooks import entry, harness
from nexus_site import old_spellings
from nexus_site.launch import take_flags
from tests.acceptance.processes import nexus

OLD = {
    "serve --port 9000 --project-root .": "serve --port 9000 --project .",
    "export --project-root=. --output h.ndjson": "export --project=. --output h.ndjson",
    "tail --agent-id ana --inbox": "tail --agent ana --inbox",
    "files reserve docs/ --as me --wait 30": "reservations reserve docs/ --agent me --wait 30",
    "figures --hours 168 --agent builder": "metrics --hours 168 --agent builder",
    "files": "reservations",
    "inbox builder": "inbox list --agent builder",
    "inbox builder --full --parked": "inbox list --full --parked --agent builder",
    "inbox --pull --json": "inbox pull --json",
    "inbox builder --history": "inbox history --agent builder",
    "inbox builder --ack msg_1 msg_2": "inbox ack msg_1 msg_2 --agent builder",
    "issue-keys builder --json": "agents issue-keys builder --json",
    "plan status": "plan show",
    "tasks add Write --context Why --project-root ../api": "tasks create Write --context Why --project ../api",
    "files list --here": "reservations list --project=.",
    "handoffs list --project-root . --for builder": "handoffs list --project . --agent builder",
    "webhooks add https://example.com --agent-id builder": "webhooks create https://example.com --agent builder",
    "webhooks remove whk_1 --yes": "webhooks delete whk_1 --yes",
}
LASTING = [
    "hook --client text --agent-id builder --project-root /shop",
    "hook install --client codex --agent-id builder",
    "runmcp --home /team",
]


@pytest.mark.parametrize("old", OLD)
def test_it_takes_a_command_line_as_it_was_spelled(old: str) -> None:
    words, remark = old_spellings.current(shlex.split(old))
    assert words == shlex.split(OLD[old]) and "goes in 0.3" in remark
    _, arguments = take_flags(words[1:])
    make_reference.parsers()[words[0]].parse_args(arguments)
    assert old_spellings.current(words) == (words, "")


def test_it_takes_every_command_line_that_the_docs_of_the_last_release_show() -> None:
    parsers = make_reference.parsers()
    for line in Path(__file__).with_name("old_command_lines.txt").read_text().splitlines():
        (name, *arguments), _ = old_spellings.current(shlex.split(line))
        _, rest = take_flags(arguments)
        if name == "hook" and entry.is_call(rest):
            harness.read(rest, {}, "")
        elif rest:  # a command's bare name is a word about it
            parsers[name].parse_args(rest)


@pytest.mark.parametrize("line", LASTING)
def test_it_leaves_what_clients_configurations_hold(line: str) -> None:
    assert old_spellings.current(shlex.split(line)) == (shlex.split(line), "")


def test_it_takes_what_comes_after_two_dashes_as_it_is() -> None:
    words = ["send", "--", "--project-root"]
    assert old_spellings.current(words) == (words, "")


@pytest.mark.usefixtures("starts_processes")
def test_it_says_the_new_spelling_on_stderr(tmp_path: Path) -> None:
    ran = nexus(tmp_path / "home", "handoffs", "--project-root", str(tmp_path), "--json")
    assert (ran.returncode, ran.stdout) == (3, '{\n  "handoffs": []\n}\n')
    assert ran.stderr == (
        "[nexus] `nexus handoffs --project-root` is now `nexus handoffs --project`; the old spelling goes in 0.3.\n"
    )
