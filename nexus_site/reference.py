"""The reference of this version, made from the code: `make docs` writes it, and a page of the dashboard shows it."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from itertools import pairwise
from threading import Lock

from django.core.management.base import CommandParser
from django.http import Http404, HttpRequest
from django.template.response import TemplateResponse
from django.utils.safestring import SafeString, mark_safe
from django.utils.text import slugify
from markdown_it import MarkdownIt

from mcp_bridge import features
from mcp_bridge.choices import enabling
from nexus.core import command_list
from nexus.core.contributions import Page
from nexus.core.operations.registry import TOOLSETS, default
from nexus.web.page import render
from nexus_site import reference_pages


def pages() -> dict[str, Callable[[], str]]:
    """Return the functions that make the pages, as Markdown, by file name."""
    toolsets = TOOLSETS.values()
    return {
        "operations.md": partial(reference_pages.operations, toolsets),
        **{f"{toolset.name}.md": partial(reference_pages.toolset, toolset) for toolset in toolsets},
        "errors.md": partial(
            reference_pages.errors, list(dict.fromkeys(code for each in toolsets for code in each.codes()))
        ),
        "settings.md": reference_pages.settings,
        "mcp.md": _mcp,
        "commands.md": lambda: reference_pages.commands(parsers()),
    }


def _mcp() -> str:
    choice = default()
    return reference_pages.mcp(
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
    )


def parsers() -> dict[str, CommandParser]:
    """Return the parser of each command, by the name people type."""
    return {name: command.create_parser("nexus", name) for name, command in command_list.commands().items()}


def show(request: HttpRequest, name: str = "operations.md") -> TemplateResponse:
    """Show a page of the reference. Their addresses end as their files do, so that their links lead to each other."""
    known = pages()
    if name not in known:
        raise Http404
    with MAKING:
        title, html = _rendered(name)
    return render(request, "nexus_site/reference.html", title, html=html, name=name, names=list(known))


@cache
def _rendered(name: str) -> tuple[str, SafeString]:
    """Return the title and the HTML of a page. Every process makes each once: some take a second of the processor."""
    heading, _, body = pages()[name]().partition("\n")
    parser = MarkdownIt("commonmark", {"html": False}).enable("table")
    tokens = parser.parse(body)
    for opening, title in pairwise(tokens):
        if opening.type == "heading_open":
            opening.attrSet("id", slugify(title.content))
    html = parser.renderer.render(tokens, parser.options, {})
    return heading.removeprefix("# "), mark_safe(html)  # noqa: S308  # our own texts, and HTML in them is escaped


MAKING = Lock()  # requests that come meanwhile wait for it
PAGES = (
    Page(
        "reference",
        "reference/",
        show,
        "Reference",
        "menu_book",
        "Hub",
        about="Every operation, error, setting and command of this version.",
        position=7,
    ),
    Page("reference_page", "reference/<str:name>", show),
)
