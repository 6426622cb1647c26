"""`manage.py reference`: writes docs/reference from the code, or tells whether it is stale."""

from __future__ import annotations

import inspect
import sys
from typing import Any

from django.core.management import get_commands, load_command_class
from django.core.management.base import CommandParser
from drf_spectacular.generators import SchemaGenerator

from coordination import consumers
from coordination.command import NexusCommand
from coordination.errors import invalid
from coordination.operation import REGISTRY
from coordination.rest import STATUS
from coordination.stream import stream
from mcp_bridge import resources
from nexus_site import health, reference
from nexus_site.launch import CORE_APPS
from nexus_site.settings import BASE_DIR

FOLDER = BASE_DIR / "docs" / "reference"
VIEWS = {
    "GET /api/v1/stream": stream,
    "WebSocket /ws/events/": consumers,
    "GET /healthz": health.alive,
    "GET /readyz": health.ready,
    "GET /metrics": health.measured,
}


class Command(NexusCommand):
    help = "Write the pages of docs/reference, in a checkout, from the code."
    examples = """examples:
  python manage.py reference
  python manage.py reference --check     change nothing; say which pages are stale

exit codes: 0 written, or all current; 1 with --check, a page is stale"""

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--check", action="store_true", help="Write nothing; tell whether a page is stale.")

    def run(self, **options: Any) -> None:
        if not FOLDER.parent.is_dir():
            raise invalid("The pages are written in a checkout of the source, and this is none.")
        stale = {name: text for name, text in pages().items() if _current(name) != text}
        for name, text in stale.items():
            if options["check"]:
                self.stderr.write(f"docs/reference/{name} is stale: run `manage.py reference`.")
            else:
                FOLDER.mkdir(parents=True, exist_ok=True)
                (FOLDER / name).write_text(text, encoding="utf-8")
                self.stdout.write(f"docs/reference/{name}")
        if stale and options["check"]:
            sys.exit(1)


def pages() -> dict[str, str]:
    """The pages by file name, as they should be."""
    schema = SchemaGenerator().get_schema(request=None, public=True)  # type: ignore[no-untyped-call]
    return {
        "operations.md": reference.operations(REGISTRY),
        "errors.md": reference.errors(STATUS),
        "settings.md": reference.settings(),
        "rest.md": reference.rest(schema, {path: inspect.getdoc(view) or "" for path, view in VIEWS.items()}),
        "mcp.md": reference.mcp(
            {name: resources.text(name) for name in ("instructions", *resources.REFERENCES)},
            [
                *((resource.uri, resource.description or "") for resource in resources.resources()),
                *((template.uri_template, template.description or "") for template in resources.templates()),
            ],
            [
                (prompt.name, prompt.description or "", [argument.name for argument in prompt.arguments or ()])
                for prompt in resources.prompts()
            ],
        ),
        "commands.md": reference.commands(parsers()),
    }


def parsers() -> dict[str, CommandParser]:
    """The parser of each command, by the name people type."""
    own = {
        name.replace("_", "-"): load_command_class(app, name)
        for name, app in get_commands().items()
        if app in CORE_APPS
    }
    return {name: command.create_parser("nexus", name) for name, command in own.items()}


def _current(name: str) -> str | None:
    file = FOLDER / name
    return file.read_text(encoding="utf-8") if file.is_file() else None
