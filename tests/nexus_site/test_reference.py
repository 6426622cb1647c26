"""docs/reference says what the code says, and in the docs no link leads nowhere and no command line is refused."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from coordination.toolset import COORDINATION
from docs import make_reference as command
from docs import reference_pages
from nexus.core.config import TABLE
from nexus.core.operations.errors import Code
from nexus.core.operations.registry import TOOLSETS
from nexus.hooks import entry, harness
from nexus_site.launch import APPS, take_flags

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
LINK = re.compile(r"\]\(([^)\s]+)\)")
CALL = re.compile(r"(?:^|[/|&;(] *)nexus +([a-z][^|<>&;)\n]*)")


def anchors(file: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", re.sub(r"^```.*?^```", "", file.read_text(), flags=re.M | re.S), re.M)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.usefixtures("starts_processes")  # what it imports looks for libraries
def test_it_is_what_the_code_says() -> None:
    stale = [name for name, text in command.pages().items() if (command.FOLDER / name).read_text() != text]
    assert not stale, "run `python -m docs.make_reference`"


@pytest.mark.usefixtures("starts_processes")
def test_it_does_not_depend_on_what_was_imported_first() -> None:
    lines = ("import django", "django.setup()", "import mcp_bridge.administration", "from docs import make_reference")
    code = "; ".join([*lines, "raise SystemExit(make_reference.main(['--check']))"])
    settings = {**os.environ, "DJANGO_SETTINGS_MODULE": "nexus_site.settings"}
    made = subprocess.run([sys.executable, "-c", code], cwd=ROOT, env=settings, capture_output=True, text=True)
    assert made.returncode == 0, made.stderr


def test_it_has_every_operation_error_setting_and_command() -> None:
    pages = command.pages()
    assert all(f"\n### {name}\n" in pages["operations.md"] for name in COORDINATION.operations)
    assert all(f"| `{code}` |" in pages["errors.md"] and code.meaning for code in Code)
    assert all(f"| `NEXUS_{name.upper()}` |" in pages["settings.md"] for name in TABLE)
    assert all(f"\n## nexus {name}\n" in pages["commands.md"] for name in ("serve", "runmcp", "dead-letters", "doctor"))
    assert "| `POST /api/v1/agents` |" in pages["rest.md"]


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
    page = command.pages()["operations.md"]
    assert "| `agents` | list of [AgentRow](#agentrow) |" in page and "\n### AgentRow\n" in page
    assert "| `role` | string or null |" in page


def test_it_tells_a_stale_page_and_writes_it_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "FOLDER", tmp_path)
    assert command.main(["--check"]) == 1 and not list(tmp_path.iterdir())
    assert command.main([]) == command.main(["--check"]) == 0
    (tmp_path / "errors.md").write_text("old")
    assert command.main(["--check"]) == 1


def test_it_tells_type_bounds_default_and_who_may() -> None:
    block = reference_pages.operation_block(COORDINATION.operations["retention_prune"])
    assert "| `max_batches` | integer | `4` | Batches of 500 rows per lane. 1–1000. |" in block
    assert "- Who may: operators.\n- Hints: writes, destructive." in block
    block = reference_pages.operation_block(COORDINATION.operations["inbox_ack"])
    assert "in strict trust with `session_id` and `session_secret`" in block
    assert "| `message_ids` | string or list of string | required |" in block


def test_it_keeps_a_bar_from_ending_a_cell() -> None:
    assert reference_pages.table(["a"], [["x | y"]]).endswith("| x \\| y |")


def test_an_operation_without_parameters_says_so() -> None:
    block = reference_pages.operation_block(COORDINATION.operations["capability_list"])
    assert "No parameters." in block and "Errors" not in block


@pytest.mark.parametrize("file", PAGES, ids=lambda file: str(file.relative_to(ROOT)))
def test_every_link_leads_somewhere(file: Path) -> None:
    for link in LINK.findall(file.read_text()):
        if re.match(r"[a-z]+:", link):
            continue
        path, _, anchor = link.partition("#")
        target = (file.parent / path).resolve() if path else file
        assert target.exists(), link
        assert not anchor or anchor in anchors(target), link


def calls(file: Path) -> Iterator[list[str]]:
    """The command lines of `nexus` on a page: after a prompt, and in backticks."""
    text = file.read_text()
    lines = re.findall(r"^\$ (.+)$", text, re.M) + re.findall(r"`((?:[^`\s]*/)?nexus [^`\n]+)`", text)
    for line in lines:
        for call in CALL.findall(line):
            yield shlex.split(call)


@pytest.mark.parametrize("file", PAGES, ids=lambda file: str(file.relative_to(ROOT)))
def test_every_command_line_is_one_that_is_taken(file: Path) -> None:
    parsers = command.parsers()
    for name, *arguments in calls(file):
        _, rest = take_flags(arguments)
        if name == "hook" and entry.is_call(rest):
            harness.read(rest, {}, "")
        elif rest:  # a command's bare name is a word about it
            parsers[name].parse_args(rest)
        else:
            assert name in parsers


@pytest.mark.parametrize("file", PAGES, ids=lambda file: str(file.relative_to(ROOT)))
def test_every_call_of_a_tool_is_one_that_is_taken(file: Path) -> None:
    for block in re.findall(r"^```json\n(.+?)^```", file.read_text(), re.M | re.S):
        call = json.loads(block) if block.lstrip().startswith('{"tool"') else None
        if call is not None:
            known = [found for each in TOOLSETS.values() if (found := each.operations.get(call["tool"]))]
            [operation] = {id(found): found for found in known}.values()  # two toolsets may share one
            fields = operation.params.model_fields
            assert call["arguments"].keys() <= fields.keys()
            assert {name for name, field in fields.items() if field.is_required()} <= call["arguments"].keys()


def test_it_finds_command_lines_in_the_docs() -> None:
    assert ["prune", "--dry-run"] in calls(ROOT / "docs" / "how-to" / "run-it-for-real.md")
