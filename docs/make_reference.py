"""Writes docs/reference from the code, or tells whether it is stale: `python -m docs.make_reference [--check]`."""

from __future__ import annotations

import argparse
import inspect
import os
import sys
from collections.abc import Sequence

import django

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "nexus_site.settings")
django.setup()

from django.core.management.base import CommandParser  # noqa: E402  # the apps first
from drf_spectacular.generators import SchemaGenerator  # noqa: E402

from coordination.log.streams import EventsConsumer, stream  # noqa: E402
from docs import reference_pages  # noqa: E402
from mcp_bridge import features  # noqa: E402
from mcp_bridge.choices import enabling  # noqa: E402
from nexus.control import websocket as pool_websocket  # noqa: E402
from nexus.control.rpc import Stream as PoolStream  # noqa: E402
from nexus.core import overview  # noqa: E402
from nexus.core.operations.registry import (  # noqa: E402
    TOOLSETS,
    default,
    operations,
)
from nexus_site.serving import health  # noqa: E402
from nexus_site.settings import BASE_DIR  # noqa: E402

FOLDER = BASE_DIR / "docs" / "reference"
VIEWS = {
    "GET /api/v1/stream": stream,
    "WebSocket /ws/events/": EventsConsumer,
    "GET /agent/{agent_id}/stream": PoolStream,
    "WebSocket /ws/pool/{agent_id}/": pool_websocket,
    "GET /healthz": health.alive,
    "GET /readyz": health.ready,
    "GET /metrics": health.measured,
}


def main(argv: Sequence[str] | None = None) -> int:
    """Exit code 0 when the pages are written, or are current; 1 with --check when one is stale."""
    parser = argparse.ArgumentParser(prog="python -m docs.make_reference", description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; tell whether a page is stale")
    check = parser.parse_args(argv).check
    stale = {name: text for name, text in pages().items() if _current(name) != text}
    for name, text in stale.items():
        if check:
            print(f"docs/reference/{name} is stale: run `python -m docs.make_reference`.", file=sys.stderr)
        else:
            FOLDER.mkdir(parents=True, exist_ok=True)
            (FOLDER / name).write_text(text, encoding="utf-8")
            print(f"docs/reference/{name}")
    return 1 if stale and check else 0


def pages() -> dict[str, str]:
    """The pages by file name, as they should be."""
    choice = default()
    schema = SchemaGenerator().get_schema(request=None, public=True)  # type: ignore[no-untyped-call]
    return {
        "operations.md": reference_pages.operations(TOOLSETS.values()),
        "errors.md": reference_pages.errors(
            list(dict.fromkeys(code for each in TOOLSETS.values() for code in each.codes()))
        ),
        "settings.md": reference_pages.settings(),
        "rest.md": reference_pages.rest(schema, {path: inspect.getdoc(view) or "" for path, view in VIEWS.items()}),
        "mcp.md": reference_pages.mcp(
            enabling(choice, lambda toolset: None),
            {
                "instructions": features.instructions(choice),
                **{page.name: page.text() for toolset in choice for page in toolset.references},
            },
            [
                *((resource.uri, resource.description or "") for resource in features.resources(choice)),
                *((template.uri_template, template.description or "") for template in features.templates(choice)),
            ],
            [
                (prompt.name, prompt.description or "", [argument.name for argument in prompt.arguments or ()])
                for prompt in features.prompts(choice)
            ],
            [each.name for each in operations() if each.wait is not None and each.wait.deferrable],
        ),
        "commands.md": reference_pages.commands(parsers()),
    }


def parsers() -> dict[str, CommandParser]:
    """The parser of each command, by the name people type."""
    return {name: command.create_parser("nexus", name) for name, command in overview.commands().items()}


def _current(name: str) -> str | None:
    file = FOLDER / name
    return file.read_text(encoding="utf-8") if file.is_file() else None


if __name__ == "__main__":
    sys.exit(main())
