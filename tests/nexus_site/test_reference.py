"""The reference says what the code says, and in the docs no link leads nowhere and no command line is refused."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
from django.test import Client

from coordination.toolset import COORDINATION
from nexus.core.command_list import commands
from nexus.core.config import TABLE
from nexus.core.operations.errors import Code
from nexus.core.operations.registry import TOOLSETS
from nexus.hooks import entry, harness
from nexus_site import reference, reference_pages
from nexus_site.launch import APPS, take_flags
from tests.pages import LOCAL, shown

ROOT = Path(__file__).parents[2]
PAGES = sorted({*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")} - {*(ROOT / "docs" / "made").glob("*.md")})
LINK = re.compile(r"\]\(([^)\s]+)\)")
CALL = re.compile(r"(?:^|[/|&;(] *)nexus +([a-z][^|<>&;)\n]*)")


def anchors(file: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", re.sub(r"^```.*?^```", "", file.read_text(), flags=re.M | re.S), re.M)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.usefixtures("starts_processes")  # what it imports looks for libraries
def test_every_operation_error_setting_and_command_has_a_text() -> None:
    pages = {name: make() for name, make in reference.pages().items()}
    for toolset in TOOLSETS.values():
        for name, operation in toolset.operations.items():
            assert operation.description and f"\n### {name}\n\n{operation.description}" in pages[f"{toolset.name}.md"]
    assert all(f"| `{code}` |" in pages["errors.md"] and code.meaning for code in Code)
    assert all(f"| `NEXUS_{name.upper()}`, `--" in pages["settings.md"] and row.help for name, row in TABLE.items())
    for name, command in commands().items():
        text = pages["commands.md"].partition(f"\n## nexus {name}\n")[2].partition("\n## ")[0]
        assert command.help and command.help in text
    assert "\n### nexus agents create\n" in pages["commands.md"]


def test_the_hub_shows_each_page_to_operators(db: None) -> None:
    browser = Client(headers=LOCAL)
    assert 'href="/admin/reference/"' in shown(browser.get("/admin/help/"))
    html = {name: shown(browser.get(f"/admin/reference/{name}")) for name in reference.pages()}
    assert '<h3 id="agent_register">' in html["coordination.md"] and "nexus doctor" in html["commands.md"]
    for name, text in html.items():
        for link, anchor in re.findall(r'href="([\w-]*[.]md|)#?([\w-]*)"', text):
            assert not anchor or f'id="{anchor}"' in html[link or name], f"{name}: {link}#{anchor}"
    assert browser.get("/admin/reference/gone.md").status_code == 404
    assert Client().get("/admin/reference/").status_code == 302


def test_each_setting_has_somebody_who_changes_it() -> None:
    named = re.findall(r"`(\w+)`", (ROOT / "docs/how-to/settings.md").read_text())
    assert TABLE.keys() <= set(named)
    assert len(TABLE) <= 45, "a constant does, unless you can say who changes it"


def test_it_cites_in_the_code_only_what_readers_have() -> None:
    for app in (*APPS, "nexus_site", "benchmarks", "docs", "tests"):
        for file in (ROOT / app.replace(".", "/")).rglob("*.py"):
            text = file.read_text()
            assert not re.search(r"[(]contract\b", text), file
            for page in re.findall(r"\((docs/[\w/-]+\.md)\)", text):
                assert (ROOT / page).is_file(), f"{file} cites {page}"


def test_it_tells_what_an_operation_answers() -> None:
    block = reference_pages.operation_block(COORDINATION.operations["handoff_create"])
    assert "| `created_at` | time |" in block
    assert "| `notified` | list of string | Agents whose inbox got a notice. Omitted if there is none. |" in block
    page = reference.pages()["coordination.md"]()
    assert "| `agents` | list of [ListedAgent](#listedagent) |" in page and "\n### ListedAgent\n" in page
    assert "| `role` | string or null |" in page


def test_it_tells_type_bounds_default_and_who_may() -> None:
    block = reference_pages.operation_block(COORDINATION.operations["retention_prune"])
    assert "| `max_batches` | integer | `4` | Batches of 500 rows per rule. 1–1000. |" in block
    assert "- Who may: operators.\n- Hints: writes, destructive." in block
    block = reference_pages.operation_block(COORDINATION.operations["inbox_ack"])
    assert "in strict trust with `session_id` and `session_secret`" in block
    assert "| `message_ids` | string or list of string | required |" in block


def test_it_keeps_a_bar_from_ending_a_cell() -> None:
    assert reference_pages.table(["a"], [["x | y"]]).endswith("| x \\| y |")


def test_an_operation_without_parameters_says_so() -> None:
    block = reference_pages.operation_block(COORDINATION.operations["capability_list"])
    assert "No parameters." in block and "Errors" not in block


def test_every_link_leads_somewhere() -> None:
    for page in PAGES:
        for link in LINK.findall(page.read_text()):
            if re.match(r"[a-z]+:", link):
                continue
            path, _, anchor = link.partition("#")
            target = (page.parent / path).resolve() if path else page
            assert target.exists(), (page, link)
            assert not anchor or anchor in anchors(target), (page, link)


def calls(file: Path) -> Iterator[list[str]]:
    """The command lines of `nexus` on a page: after a prompt, and in backticks."""
    text = file.read_text()
    lines = re.findall(r"^\$ (.+)$", text, re.M) + re.findall(r"`((?:[^`\s]*/)?nexus [^`\n]+)`", text)
    for line in lines:
        for call in CALL.findall(line):
            yield shlex.split(call)


def test_every_command_line_is_one_that_is_taken() -> None:
    parsers = reference.parsers()
    for name, *arguments in [call for file in PAGES for call in calls(file)]:
        _, rest = take_flags(arguments)
        if name == "hook" and entry.is_call(rest):
            harness.parse_call(rest, {}, "")
        elif rest:  # a command's bare name is a word about it
            parsers[name].parse_args(rest)
        else:
            assert name in parsers


def test_every_call_of_a_tool_is_one_that_is_taken() -> None:
    text = "\n".join(file.read_text() for file in PAGES)
    for block in re.findall(r"^```json\n(.+?)^```", text, re.M | re.S):
        call = json.loads(block) if block.lstrip().startswith('{"tool"') else None
        if call is not None:
            known = [found for each in TOOLSETS.values() if (found := each.operations.get(call["tool"]))]
            [operation] = {id(found): found for found in known}.values()  # two toolsets may share one
            fields = operation.params.model_fields
            assert call["arguments"].keys() <= fields.keys()
            assert {name for name, field in fields.items() if field.is_required()} <= call["arguments"].keys()


def test_it_finds_command_lines_in_the_docs() -> None:
    assert ["prune", "--dry-run"] in calls(ROOT / "docs" / "how-to" / "run-it-for-real.md")
