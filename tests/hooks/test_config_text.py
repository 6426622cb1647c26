"""An edit of a configuration changes what it names and no other byte, and can be taken back to the byte."""

from __future__ import annotations

import tomllib
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from nexus.core.coding_clients import Format
from nexus.hooks import client_files
from nexus.hooks.client_files import Edit
from nexus.hooks.config_text import FORMATS, TomlText
from nexus.hooks.setup_pieces import Kind
from nexus.hooks.setup_record import Written
from tests.conftest import examples

HOLE = "@@"  # a value that the user changes afterwards
ENTRY = {"command": "/opt/nexus", "args": ["runmcp", "--toolsets", "a,b"]}
COMMAND = "/opt/nexus hook --client claude-code"
KINDS: tuple[Kind, ...] = ("server", "hooks")

BLANKS = st.sampled_from(
    ["", " ", "\n", "\r\n", "\n\t", "\n    ", ' // "a": {\n', " // c  \r\n  ", "/* { */", "/*\n*/ "]
)
SCALARS = st.sampled_from(
    [
        "1.10",
        "-0",
        "1E+3",
        r'"caf\u00e9"',
        r'"a\"b"',
        '"//no"',
        r'"\ud800"',
        "null",
        "'one'",
        "0xFF",
        "+.5",
        "NaN",
        HOLE,
    ]
)


@st.composite
def objects(draw: st.DrawFn, members: st.SearchStrategy[str]) -> str:
    """The text of an object of JSON5, with members that are texts."""
    inside = draw(st.lists(members, max_size=3))
    text = ",".join(f"{draw(BLANKS)}{member}{draw(BLANKS)}" for member in inside)
    comma = "," if draw(st.booleans()) and inside else ""
    return f"{{{text}{comma}{draw(BLANKS)}}}"


def members(values: st.SearchStrategy[str], *more: str) -> st.SearchStrategy[str]:
    keys = st.sampled_from(['"a"', '"b"', "key", "'k'", '"a\\u0062"', '"//"', *more])
    return st.builds(lambda key, blanks, value: f"{key}{blanks}:{blanks}{value}", keys, BLANKS, values)


VALUES = st.recursive(
    SCALARS,
    lambda inner: objects(members(inner)) | st.lists(inner, max_size=3).map(lambda items: "[" + ", ".join(items) + "]"),
    max_leaves=6,
)
HOOKED = objects(
    members(st.lists(objects(members(VALUES)), max_size=2).map(lambda groups: f"[{','.join(groups)}]"), '"Stop"')
)
ROOTS = objects(
    members(VALUES)
    | objects(members(VALUES)).map('"mcpServers": {}'.format)
    | objects(members(VALUES)).map("mcpServers:{}".format)
    | HOOKED.map('"hooks" : {}'.format)
    | st.just('"hooks": {"Stop": [ ]}')
)
JSON = st.builds("{}{}{}{}".format, st.sampled_from(["", "\ufeff"]), BLANKS, ROOTS, BLANKS) | st.sampled_from(
    [
        "",
        "\n",
        "\ufeff",
        "// c",
        "// c\r\n",
        "/* c */",
        "{}",
        "{ }\r\n",
        '{"mcpServers": {}}',
        '{\n  "mcpServers": {}\n}\n',
    ]
)

ROOT_KEYS = [
    *("a = 1.10\n", 's = "caf\\u00e9" # c\n', "l = [\n  1, # one\n  2,\n]\n", "# c\n", "\n"),
    'm = """\n[mcp_servers.no]\nx""""\n',
]
SERVER_FORMS = [
    *("", "mcp_servers = {}\n", "mcp_servers = { }\n", 'mcp_servers = { docs = { command = "npx" } } # c\n'),
    *('mcp_servers.docs.command = "npx"\n', '"mcp_servers" . docs . "command" = "npx"\nmcp_servers.docs.args = []\n'),
    *("[mcp_servers]\n", "[mcp_servers] # all\ndocs.command = 'npx'\n\n# end\n", '[ mcp_servers . "docs" ]\n\tx = 1\n'),
]
NEWER_FORMS = [
    *('mcp_servers = {\n  docs = { command = "n\\x41" }, # c\n}\n', "mcp_servers = { # c\n}\n", "mcp_servers = {\n}\n"),
    *("mcp_servers.docs = {\n\tx = 07:32\n}\n", 'mcp_servers = { docs = { command = "\\e" },\n# } c\n }\n'),
]
TABLES = ["[t]\nx = { y = 1, z = [1] } # c\n", "[[h]]\nx = 1979-05-27 07:32:00 # c\n", '["q.r"]\n', "# c\n", "\n"]


@st.composite
def tomls(draw: st.DrawFn, forms: list[str]) -> str:
    """The text of a configuration in TOML, with the servers in one of these forms."""
    some = st.lists(st.sampled_from(range(len(ROOT_KEYS))), unique=True, max_size=4)
    text = "".join(ROOT_KEYS[number] for number in draw(some)) + draw(st.sampled_from(forms))
    text += "".join(TABLES[number] for number in draw(st.lists(st.sampled_from(range(5)), unique=True, max_size=4)))
    text += draw(st.sampled_from(["", f"[end]\nv = {HOLE}\n"]))
    text = text.removesuffix("\n") if draw(st.booleans()) else text
    text = text.replace("\n", "\r\n") if draw(st.booleans()) else text
    return draw(st.sampled_from(["", "\ufeff"])) + text


def edit(format: Format, kind: str) -> tuple[str, Edit]:
    """A client of a format, and the edit that puts in our entry, or our hooks."""
    if kind == "hooks":
        return "claude-code", client_files.put_hooks("claude-code", COMMAND)
    client = "codex" if format == "toml" else "cursor"
    return client, client_files.put_server(client, ENTRY)


def edited(format: Format, text: str, kind: Kind) -> str:
    document = FORMATS[format](text)
    edit(format, kind)[1](document)
    return document.text


def undone(format: Format, before: str, written: str, now: str, kind: Kind) -> str | None:
    client = edit(format, kind)[0]
    return Written(before, written, [(kind, client)], []).reverted(Path("settings"), now)


def removed(format: Format, before: str, now: str, kind: Kind) -> str:
    document, earlier, client = FORMATS[format](now), FORMATS[format](before), edit(format, kind)[0]
    drop = client_files.drop_hooks if kind == "hooks" else client_files.drop_server
    drop(client, earlier)(document)
    return document.text


def holds(longer: str, shorter: str) -> bool:
    """Whether a text is another one with insertions."""
    letters = iter(longer)
    return all(letter in letters for letter in shorter)


def check(format: Format, text: str, kind: Kind, old: str, new: str) -> None:
    before, changed = text.replace(HOLE, old), text.replace(HOLE, new)
    written = edited(format, before, kind)
    assert holds(written, before)
    assert edited(format, written, kind) == written
    assert undone(format, before, written, written, kind) == before
    if not FORMATS[format](before).is_empty:
        assert removed(format, before, written, kind) == before
        assert undone(format, before, written, written.replace(old, new), kind) == changed


@settings(max_examples=examples(300))
@given(JSON, st.sampled_from(KINDS), st.sampled_from(["7", "{ /* x */ }", "[\n]"]))
def test_json_changes_by_the_entry_alone_and_comes_back_to_the_byte(text: str, kind: Kind, new: str) -> None:
    check("json", text, kind, '"@"', new)


@settings(max_examples=examples(300))
@given(tomls(SERVER_FORMS), st.sampled_from(["7", "[1, \n2]"]))
def test_toml_changes_by_the_entry_alone_and_comes_back_to_the_byte(text: str, new: str) -> None:
    check("toml", text, "server", '"@"', new)
    before = text.replace(HOLE, "0")
    then, now = (tomllib.loads(each.removeprefix("\ufeff")) for each in (before, edited("toml", before, "server")))
    assert now["mcp_servers"].pop("nexus") == ENTRY
    assert now == {"mcp_servers": {}, **then}


@settings(max_examples=examples(100))
@given(tomls(NEWER_FORMS))
def test_toml_1_1_is_read_and_kept(text: str) -> None:
    check("toml", text, "server", '"@"', "7")
    assert TomlText(edited("toml", text.replace(HOLE, "0"), "server")).get(("mcp_servers", "nexus")) == ENTRY
