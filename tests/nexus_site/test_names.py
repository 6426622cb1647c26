"""Names that texts and templates give to pages, files, commands, settings and modules: each of them is there."""

from __future__ import annotations

import argparse
import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from pkgutil import resolve_name

import pytest
from django.contrib.staticfiles import finders
from django.template import Template
from django.template.base import Node
from django.template.defaulttags import URLNode
from django.template.loader import get_template
from django.template.loader_tags import ExtendsNode, IncludeNode
from django.templatetags.static import StaticNode
from django.urls import get_resolver

from nexus.core.apps import nexus_apps
from nexus.core.config import TABLE
from nexus.core.contributions import EntityRef
from nexus_site import reference
from tests.nexus_site.test_reference import PAGES, ROOT

CODE = [
    file
    for folder in ("nexus", "coordination", "inbox", "handoffs", "mcp_bridge", "nexus_site")
    for file in (ROOT / folder).rglob("*")
    if file.suffix in (".py", ".md", ".js")
]
TEMPLATES = sorted((ROOT / "templates").rglob("*.html"))
TEXTS = [*CODE, *TEMPLATES]
FORMER = {"nexus.client.Told"}  # the changelog tells its present name


@cache
def arguments_of_pages() -> dict[str, set[int]]:
    """How many arguments each page takes, by its name."""
    found: dict[str, set[int]] = {}
    resolvers = [("", get_resolver())]
    for prefix, (_, resolver) in get_resolver().namespace_dict.items():
        resolvers.append((f"{prefix}:", resolver))
    for prefix, resolver in resolvers:
        for name in filter(lambda key: isinstance(key, str), resolver.reverse_dict):
            for possibilities, *_ in resolver.reverse_dict.getlist(name):
                found.setdefault(f"{prefix}{name}", set()).update(len(taken) for _, taken in possibilities)
    return found


def nodes(file: Path) -> list[Node]:
    """All nodes of a template; to compile it fails where it loads a library or uses a tag that there is not."""
    return list(Template(file.read_text()).nodelist.get_nodes_by_type(Node))


def constant(expression: object) -> str:
    """The text in quotes; nothing where a variable says it."""
    quoted = re.fullmatch(r"""["'](.+)["']""", str(getattr(expression, "token", "")))
    return quoted[1] if quoted else ""


@pytest.mark.parametrize("file", TEMPLATES, ids=lambda file: str(file.relative_to(ROOT)))
def test_a_template_names_pages_templates_and_files_that_are_there(file: Path) -> None:
    pages = arguments_of_pages()
    for node in nodes(file):
        if isinstance(node, URLNode) and (name := constant(node.view_name)):
            assert len(node.args) + len(node.kwargs) in pages[name], name
        elif isinstance(node, IncludeNode | ExtendsNode):
            named = constant(node.template if isinstance(node, IncludeNode) else node.parent_name)
            assert not named or get_template(named)
        elif isinstance(node, StaticNode) and (path := constant(node.path)):
            assert finders.find(path), path


def test_it_sees_a_page_that_there_is_not(tmp_path: Path) -> None:
    (tmp_path / "a.html").write_text("{% if never %}{% url 'admin:gone' 1 %}{% endif %}")
    with pytest.raises(KeyError, match="admin:gone"):
        test_a_template_names_pages_templates_and_files_that_are_there(tmp_path / "a.html")


def test_code_names_pages_that_are_there() -> None:
    pages = arguments_of_pages().keys()
    named = {name for file in CODE for name in re.findall(r"""["'](admin:\w+)["']""", file.read_text())}
    for app in nexus_apps():
        named |= {f"admin:{kind.page}" for kind in app.attention_kinds() if kind.page}
        named |= {f"admin:{each.page}" for each in app.entity_refs().values() if isinstance(each, EntityRef)}
    assert len(named) > 20 and named <= pages, named - pages


def commands(file: Path) -> Iterator[str]:
    """What follows `nexus` where a text names a command: in backticks, in <code>, at the start of a string."""
    text = file.read_text()
    yield from re.findall(r"`(?:nexus) ([a-z][^`\n]*)`", text)
    yield from re.findall(r"<code>nexus ([a-z][^<\n]*)</code>", text)
    if file.suffix == ".py":
        strings = (node.value for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Constant))
        yield from (one.removeprefix("nexus ") for one in strings if isinstance(one, str) and one.startswith("nexus "))


def check(words: list[str], parser: argparse.ArgumentParser) -> str:
    """What of a command's words it does not take: its verb or a flag; nothing where it takes all."""
    verbs = [action.choices for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    if verbs:
        named = len(words) > 1 and re.fullmatch("[a-z][a-z-]*", words[1])
        verb = words[1] if named else getattr(parser, "default", "")
        if verb and verb not in verbs[0]:
            return verb
        parser = verbs[0].get(verb, parser)
    taken = {flag for action in parser._actions for flag in action.option_strings}
    taken |= {f"--{name.replace('_', '-')}" for name in TABLE}
    return next((word for word in words if word.startswith("--") and word.partition("=")[0] not in taken), "")


def test_texts_of_the_program_name_commands_verbs_and_flags_that_are_there() -> None:
    parsers = reference.parsers()
    lines = [(file, words) for file in TEXTS for line in commands(file) if (words := line.split())]
    assert len(lines) > 200
    assert check(["tasks", "add"], parsers["tasks"]) == "add" and check(["tail", "--by"], parsers["tail"]) == "--by"
    assert [(file, words) for file, words in lines if words[0] not in parsers or check(words, parsers[words[0]])] == []


@cache
def read_variables() -> set[str]:
    """The variables of the environment that code and tests name."""
    files = [*CODE, *(ROOT / "tests").glob("*.py")]
    return {name for file in files for name in re.findall(r"\bNEXUS_[A-Z_]+[A-Z]\b", file.read_text())}


def test_pages_name_files_modules_and_settings_that_are_there() -> None:
    text = "\n".join(file.read_text() for file in PAGES)
    tops = r"(?:nexus|coordination|inbox|handoffs|mcp_bridge|nexus_site|tests|benchmarks|docs|templates)"
    for path in re.findall(rf"`({tops}/[\w./-]*)`", text):
        assert (ROOT / path).exists(), path
    for name in set(re.findall(rf"`({tops}(?:\.\w+)+)[(`]", text)) - FORMER - {"nexus.db", "nexus.toml"}:
        resolve_name(name)
    variables = set(re.findall(r"\bNEXUS_[A-Z_]+[A-Z]\b", text))
    assert variables - {f"NEXUS_{name.upper()}" for name in TABLE} <= read_variables()
