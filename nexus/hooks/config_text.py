"""Edits of JSON, JSONC, JSON5 and TOML in place: what an edit does not name keeps every byte.

No well-kept library does that. A text is scanned for where its values stand, and a value is decoded only when somebody
asks for it, so numbers, escapes and repeated keys stay as they are written. Of a repeated key the last counts, as for
most clients.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

BYTE_ORDER_MARK = "\ufeff"
Path = tuple[str | int, ...]  # keys of objects, and indexes in JSON's lists
BREAK = re.compile(r"\r\n|\n|\r")


class WrongShape(Exception):
    """A part of the text has a type that its client would not accept either."""


def _without_blanks(text: str) -> str:
    return "".join(text.split())


@dataclass(frozen=True)
class Node:
    """Where a value stands in the text."""

    start: int
    end: int
    is_object: bool = False
    items: tuple[Item, ...] | None = None  # of an object or a list; None for a scalar


@dataclass(frozen=True)
class Item:
    """A member of an object, or an item of a list."""

    keys: tuple[str, ...]  # several for a dotted key of TOML, none in a list
    start: int
    value: Node
    comma: int | None  # the offset of the comma behind it


class ConfigText:
    """The text of a configuration file, with edits. Raises ValueError if it is malformed."""

    COMMENT: re.Pattern[str]
    SKIPPED: re.Pattern[str]  # between the parts of a value; matches an empty text, too
    STRING: re.Pattern[str]
    WORD: re.Pattern[str]  # any other scalar
    ON_ONE_LINE: bool  # whether each object stands on one line, with blanks inside its braces

    def __init__(self, text: str) -> None:
        self.text = text
        found = BREAK.search(text)
        self.newline = found[0] if found else "\n"
        indented = re.search(r"^([ \t]+)\S", text, re.MULTILINE)
        self.unit = indented[1] if indented else "  "
        try:
            self._read()
        except RecursionError:
            raise ValueError("it is nested too deeply") from None

    @property
    def is_empty(self) -> bool:
        """Whether it holds nothing, no comment either."""
        return _without_blanks(self.text.removeprefix(BYTE_ORDER_MARK)) in ("", "{}")

    def get(self, path: Path) -> Any:
        """Return the value at a path; None if there is none."""
        raise NotImplementedError

    def node(self, path: Path) -> Node | None:
        """Return where the value at a path stands; None if there is none in one piece."""
        holder, left = self._holder(path)
        node, left = self._descend(holder, left) if holder else (None, path)
        return None if left else node

    def put(self, path: Path, value: Any) -> None:
        """Set the value at a path, and the objects on the way to it. Raises WrongShape."""
        raise NotImplementedError

    def remove(self, path: Path, before: ConfigText | None = None) -> None:
        """Remove the value at a path, and each object and list around it that holds nothing else then. One that the
        text `before` had stays; if it was empty, as it was there."""
        is_there = False
        while found := self._find(path):
            is_there = True
            self._drop(*found)
            if isinstance(path[-1], int):
                break  # the next one has this index now
        around = self.node(path[:-1])
        if not is_there or around is None or around.items:
            return
        earlier = before.node(path[:-1]) if before else None
        if earlier is None and len(path) > 1:
            self.remove(path[:-1], before)
        elif earlier is None or not earlier.items:
            empty = before.text[earlier.start : earlier.end] if before and earlier else "{}"
            was_null = earlier is not None and earlier.items is None
            if was_null or _without_blanks(empty) == _without_blanks(self.text[around.start : around.end]):
                self._splice((around.start, around.end, empty))
            elif not empty and before:  # there were comments alone
                is_ended = before.text.endswith(("\r", "\n"))
                start = around.start if is_ended else len(self.text[: around.start].rstrip("\r\n"))
                self._splice((start, len(self.text), ""))

    # What each format has in its own way

    def _read(self) -> None:
        raise NotImplementedError

    def _holder(self, path: Path) -> tuple[Node | None, Path]:
        """Return the outermost value on the way to a path, and what is left of the path."""
        raise NotImplementedError

    def _key(self, at: int) -> tuple[tuple[str, ...], int]:
        """Return the keys at an offset, and the offset behind them and their sign."""
        raise NotImplementedError

    def _written(self, value: Any, indent: str | None = None) -> str:
        """Return the text of a value: on one line, or on several if the indentation of its first line is given."""
        raise NotImplementedError

    def _member(self, path: Path, value: Any, indent: str | None) -> str:
        """Return the text of a member of an object."""
        raise NotImplementedError

    # Scanning

    def _skip(self, at: int) -> int:
        found = self.SKIPPED.match(self.text, at)
        return found.end() if found else at

    def _scan(self, at: int) -> Node:
        """Return the value at an offset."""
        at = start = self._skip(at)
        opening = self.text[at : at + 1]
        if opening not in ("{", "["):
            scalar = self.STRING.match(self.text, at) or self.WORD.match(self.text, at)
            if scalar is None:
                raise self._malformed("a value is malformed", at)
            return Node(start, scalar.end())
        closing, items = "}" if opening == "{" else "]", list[Item]()
        at = self._skip(at + 1)
        while self.text[at : at + 1] != closing:
            if items and items[-1].comma is None:
                raise self._malformed("a comma is missing", at)
            begin = at
            keys, at = self._key(at) if opening == "{" else ((), at)
            value = self._scan(at)
            at = self._skip(value.end)
            comma = at if self.text[at : at + 1] == "," else None
            items.append(Item(keys, begin, value, comma))
            at = at if comma is None else self._skip(at + 1)
        return Node(start, at + 1, opening == "{", tuple(items))

    @staticmethod
    def _descend(node: Node, path: Path) -> tuple[Node, Path]:
        """Return the last value on the way to a path, and what is left of the path."""
        while path:
            items = node.items or ()
            if isinstance(path[0], int):
                led = list(items[path[0] : path[0] + 1])
            else:
                led = [item for item in items if item.keys and item.keys == path[: len(item.keys)]]
            if not led:
                break
            node, path = led[-1].value, path[len(led[-1].keys) or 1 :]
        return node, path

    def _find(self, path: Path) -> tuple[Node, Item] | None:
        """Return an item at a path, or below it, with the value in which it stands."""
        holder, path = self._holder(path)
        if holder is None or not path:
            return None
        parent, left = self._descend(holder, path[:-1])
        key = (*left, path[-1])
        if isinstance(path[-1], int):
            found = [] if left else (parent.items or ())[path[-1] : path[-1] + 1]
        else:
            found = [item for item in parent.items or () if item.keys[: len(key)] == key]
        return (parent, found[-1]) if found else None

    def _malformed(self, what: str, at: int) -> ValueError:
        return ValueError(f"{what} in line {len(BREAK.findall(self.text, 0, at)) + 1}")

    # Editing

    def _splice(self, *changes: tuple[int, int, str]) -> None:
        for start, end, new in sorted(changes, reverse=True):
            self.text = self.text[:start] + new + self.text[end:]
        self._read()

    def _put_below(self, node: Node, path: Path, value: Any) -> None:
        node, left = self._descend(node, path)
        if self.text[node.start : node.end] == "null":  # of JSON; clients take it for nothing
            for key in reversed(left):
                value = {key: value}
            left = ()
        if left and not node.is_object:
            way = ".".join(map(str, path[: -len(left)]))
            raise WrongShape(f"has a {way!r} that is no object" if way else "is no object")
        if left:
            self._insert(node, left, value)
        else:
            is_long = BREAK.search(self.text, node.start, node.end)
            text = self._written(value, self._indent(node.start) if is_long else None)
            self._splice((node.start, node.end, text))

    def _insert(self, node: Node, path: Path, value: Any) -> None:
        """Insert a member at the end of an object, or with an empty path an item at the end of a list, in the form of
        what it holds."""
        close = node.end - 1
        at = len(self.text[:close].rstrip())  # behind comments
        last = node.items[-1] if node.items else None
        if last is None:
            is_long = BREAK.search(self.text, node.start, close)
            may_break = not self.ON_ONE_LINE and (self.is_empty or BREAK.search(self.text.strip()))
            indent = self._indent(node.start) + self.unit if is_long or may_break else None
        else:
            indent = self._indent(last.start) if self._begins_line(last.start) else None
            if indent is None and BREAK.search(self.text, last.value.end, close):  # a comment may end the line
                indent = self._indent(node.start) + self.unit
        lead = " " if indent is None else self.newline + indent
        text = self._member(path, value, indent) if path else self._written(value, indent)
        if last is None and indent is None:
            self._splice((at, close, f" {text} " if self.ON_ONE_LINE else text))
        elif last is None:
            end = at if BREAK.search(self.text, at, close) else close
            self._splice((at, end, lead + text + (self.newline + self._indent(node.start) if end == close else "")))
        elif last.comma is not None:
            self._splice((at, at, f"{lead}{text},"))
        elif last.value.end == at:
            self._splice((at, at, f",{lead}{text}"))
        else:
            self._splice((at, at, lead + text), (last.value.end, last.value.end, ","))

    def _drop(self, node: Node, item: Item) -> None:
        """Remove an item with its comma; the last one, if it has none, with the comma before it."""
        items = node.items or ()
        before = next((each for each in reversed(items) if each.start < item.start), None)
        start = len(self.text[: item.start].rstrip())
        end = item.value.end if item.comma is None else item.comma + 1
        gap = self.text[before.value.end if before else node.start : start]
        ends_commented = any(each.end() == len(gap) for each in self.COMMENT.finditer(gap) if each[0][:2] != "/*")
        if ends_commented and not re.match(r"[ \t]*[\r\n]", self.text[end:]):
            start = item.start  # the line break ends that comment
        if item.comma is not None or before is None or before.comma is None:
            self._splice((start, end, ""))
        elif before.comma + 1 == start:
            self._splice((before.comma, end, ""))
        else:
            self._splice((before.comma, before.comma + 1, ""), (start, end, ""))

    def _indent(self, at: int) -> str:
        """Return the whitespace with which the line of an offset begins."""
        line = BREAK.split(self.text[:at].removeprefix(BYTE_ORDER_MARK))[-1]
        return line[: len(line) - len(line.lstrip(" \t"))]

    def _begins_line(self, at: int) -> bool:
        return self.text[:at].rstrip(" \t").endswith(("\r", "\n"))


class JsonText(ConfigText):
    """JSON, and what JSONC and JSON5 add to it."""

    COMMENT = re.compile(r"//[^\r\n]*|/\*(?s:.)*?\*/")
    ON_ONE_LINE = False
    SKIPPED = re.compile(r"(?>[\s\ufeff]|//[^\r\n]*|/\*(?s:.)*?\*/)*+")
    STRING = re.compile(r""""(?:[^"\\\r\n]|\\(?s:.))*+"|'(?:[^'\\\r\n]|\\(?s:.))*+'""")
    NAME = re.compile(r"(?:[\w$]|\\u[0-9a-fA-F]{4})+")
    WORD = re.compile(
        r"(?:true|false|null|[+-]?(?:Infinity|NaN|0[xX][0-9a-fA-F]+|(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?))(?![\w$.])"
    )
    ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|x([0-9a-fA-F]{2})|(\r\n|(?s:.)))")
    ESCAPED = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v", "0": "\0", "\n": "", "\r\n": ""}

    def get(self, path: Path) -> Any:
        node = self.node(path)
        return None if node is None else self._decoded(node)

    def put(self, path: Path, value: Any) -> None:
        if self.get(path) == value:
            return
        if self.root.start == self.root.end:  # nothing, or comments alone
            is_ended = _without_blanks(self.text) in ("", BYTE_ORDER_MARK) or self.text.endswith(("\r", "\n"))
            self._splice((len(self.text), len(self.text), f"{'' if is_ended else self.newline}{{}}{self.newline}"))
        self._put_below(self.root, path, value)

    def append(self, path: Path, value: Any) -> None:
        """Add a value to the list at a path. Raises WrongShape."""
        node = self.node(path)
        if node is None or self.get(path) is None:
            self.put(path, [value])
        elif node.is_object or node.items is None:
            raise WrongShape(f"has a {path[-1]!r} that is no list")
        else:
            self._insert(node, (), value)

    def _read(self) -> None:
        begin = self._skip(0)
        self.root = self._scan(begin) if begin < len(self.text) else Node(begin, begin, True, ())
        if self._skip(self.root.end) != len(self.text):
            raise self._malformed("nothing may follow it", self.root.end)

    def _holder(self, path: Path) -> tuple[Node | None, Path]:
        return self.root, path

    def _key(self, at: int) -> tuple[tuple[str, ...], int]:
        found = self.STRING.match(self.text, at) or self.NAME.match(self.text, at)
        colon = self._skip(found.end()) if found else at
        if found is None or self.text[colon : colon + 1] != ":":
            raise self._malformed("a key is malformed", at)
        return (self._string(found[0]),), colon + 1

    def _decoded(self, node: Node) -> Any:
        if node.is_object:
            return {item.keys[0]: self._decoded(item.value) for item in node.items or ()}
        if node.items is not None:
            return [self._decoded(item.value) for item in node.items]
        raw = self.text[node.start : node.end]
        if raw[0] in "\"'":
            return self._string(raw)
        try:
            return json.loads(raw)
        except ValueError:
            return raw  # a number of JSON5: nobody asks for one

    def _string(self, raw: str) -> str:
        """Return what a string, or a key without quotes, stands for."""

        def plain(found: re.Match[str]) -> str:
            code = found[1] or found[2]
            return chr(int(code, 16)) if code else self.ESCAPED.get(found[3], found[3])

        text = self.ESCAPE.sub(plain, raw[1:-1] if raw[0] in "\"'" else raw)
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")

    def _written(self, value: Any, indent: str | None = None) -> str:
        text = json.dumps(value, ensure_ascii=False, indent=None if indent is None else self.unit)
        return text if indent is None else text.replace("\n", self.newline + indent)

    def _member(self, path: Path, value: Any, indent: str | None) -> str:
        for key in reversed(path[1:]):
            value = {key: value}
        return f"{self._written(path[0])}: {self._written(value, indent)}"


@dataclass(frozen=True)
class Statement:
    """A header of TOML, or a key with its value: one line, or more if the value has more."""

    table: tuple[str, ...]  # in which it stands; a header stands in its own
    path: tuple[str, ...]
    start: int
    end: int
    value: Node | None  # None for a header


class TomlText(ConfigText):
    """TOML: headers and keys are statements, inline tables are objects."""

    COMMENT = re.compile(r"#[^\n]*")
    ON_ONE_LINE = True
    SKIPPED = re.compile(r"(?>\s|#[^\n]*)*+")
    STRING = re.compile(
        r'"""(?:\\(?s:.)|[^\\])*?"""(?!")' r"|'''(?s:.)*?'''(?!')" r'|"(?:[^"\\\n]|\\.)*+"' r"|'[^'\n]*+'"
    )
    NAME = re.compile(r"[A-Za-z0-9_-]+")
    WORD = re.compile(r"[^\s,\]}#]+(?: [0-9][^\s,\]}#]*)?")  # a date may have a blank before the time
    LINE = re.compile(r"[^\n]*\n?")

    def get(self, path: Path) -> Any:
        value: Any = self.value
        for key in path:
            value = value.get(key) if isinstance(value, dict) else None
        return value

    def put(self, path: Path, value: Any) -> None:
        if self.get(path) == value:
            return
        for depth in range(1, len(path)):
            if not isinstance(self.get(path[:depth]) or {}, dict):
                raise WrongShape(f"has a {'.'.join(map(str, path[:depth]))!r} that is no table")
        holder, left = self._holder(path)
        if holder:
            self._put_below(holder, left, value)
        elif isinstance(value, Mapping):
            self._append_table(path, value)
        elif not self._add_line(path, value):
            self._append_table(path[:-1], {str(path[-1]): value})

    def remove(self, path: Path, before: ConfigText | None = None) -> None:
        while found := [
            each
            for each in self.statements
            if each.path[: len(path)] == path and (each.value is None or each.table[: len(path)] != path)
        ]:
            self._splice((*self._span(found[-1]), ""))
        super().remove(path, before)

    def _read(self) -> None:
        begin = len(self.text) - len(self.text.removeprefix(BYTE_ORDER_MARK))
        self.statements = list(self._scan_statements(begin))
        self.value = tomllib.loads(self._as_toml_1_0(begin))

    def _scan_statements(self, at: int) -> Iterator[Statement]:
        table: tuple[str, ...] = ()
        while at < len(self.text):
            start, at = at, self._skip_blanks(at)
            letter = self.text[at : at + 1]
            is_statement, value = letter not in "\r\n#", None
            if letter == "[":
                table, at = self._keys(at + 1 + self.text.startswith("[[", at))
                path = table
            elif is_statement:
                path, at = self._key(at)
                path, value = (*table, *path), self._scan(at)
                at = value.end
            found = self.LINE.match(self.text, at)
            at = found.end() if found else at
            if is_statement:
                yield Statement(table, path, start, at, value)

    def _as_toml_1_0(self, begin: int) -> str:
        """Return the text without what TOML 1.1 adds, which `tomllib` does not read before Python 3.15."""
        parts = list[str]()
        for each in self.statements:
            if each.value is not None:
                parts += [self.text[begin : each.value.start], self._plain(each.value)]
                begin = each.value.end
        return "".join([*parts, self.text[begin:]])

    def _plain(self, node: Node) -> str:
        """Return the text of a value on one line, unless a string has several."""
        if node.items is not None:
            items = (self.text[item.start : item.value.start] + self._plain(item.value) for item in node.items)
            return f"{{{','.join(items)}}}" if node.is_object else f"[{','.join(items)}]"
        raw = self.text[node.start : node.end]
        if raw.startswith('"'):
            return re.sub(r"\\(?:x([0-9a-fA-F]{2})|(e)|(?s:.))", self._plain_escape, raw)
        return raw if raw.startswith("'") else re.sub(r"(?<![:\d])(\d\d:\d\d)(?![:\d])", r"\1:00", raw)

    @staticmethod
    def _plain_escape(found: re.Match[str]) -> str:
        return rf"\u00{found[1] or '1b'}" if found[1] or found[2] else found[0]

    def _holder(self, path: Path) -> tuple[Node | None, Path]:
        for each in self.statements:
            if each.value is not None and each.path == path[: len(each.path)]:
                return each.value, path[len(each.path) :]
        return None, path

    def _add_line(self, path: Path, value: Any) -> bool:
        """Add a key to a table that has a header, or dotted keys; return whether there is one."""
        table = path[:-1]
        within = [each for each in self.statements if each.path[: len(table)] == table]
        inside = [each for each in within if each.table == table] or [
            each for each in within if each.value and len(each.table) < len(table)
        ]
        if not inside:
            return False
        above = inside[-1]
        is_ended = self.text.endswith("\n", above.start, above.end)
        indent = self.text[above.start : self._skip_blanks(above.start)]
        line = indent + self._member(path[len(above.table) :], value, None)
        line = line + self.newline if is_ended else self.newline + line
        self._splice((above.end, above.end, line))
        return True

    def _append_table(self, path: Path, value: Mapping[str, Any]) -> None:
        lines = [f"[{self._dotted(path)}]", *(self._member((key,), each, None) for key, each in value.items())]
        text = self.newline.join(lines)
        if self.text.endswith("\n"):
            text = self.newline + text + self.newline
        else:
            text = 2 * self.newline + text if self.text.removeprefix(BYTE_ORDER_MARK) else text + self.newline
        self._splice((len(self.text), len(self.text), text))

    def _span(self, each: Statement) -> tuple[int, int]:
        """Return where a statement stands: a header with its table's keys, and with an empty line above it."""
        start, end = each.start, each.end
        if each.value is None:
            for later in self.statements[self.statements.index(each) + 1 :]:
                if later.value is None:
                    break
                end = later.end
            above = self._without_break(start)
            if above < start and (above == 0 or self.text[above - 1] in f"\n{BYTE_ORDER_MARK}"):
                start = above
        if end == len(self.text) and not self.text.endswith("\n"):
            start = self._without_break(start)
        return start, end

    def _without_break(self, at: int) -> int:
        return len(self.text[:at].removesuffix("\n").removesuffix("\r"))

    def _skip_blanks(self, at: int) -> int:
        while self.text[at : at + 1] in (" ", "\t"):
            at += 1
        return at

    def _keys(self, at: int) -> tuple[tuple[str, ...], int]:
        keys = list[str]()
        while True:
            at = self._skip_blanks(at)
            found = self.STRING.match(self.text, at) or self.NAME.match(self.text, at)
            if found is None:
                raise self._malformed("a key is malformed", at)
            keys += tomllib.loads(f"{found[0]} = 0")
            at = self._skip_blanks(found.end())
            if self.text[at : at + 1] != ".":
                return tuple(keys), at
            at += 1

    def _key(self, at: int) -> tuple[tuple[str, ...], int]:
        keys, at = self._keys(at)
        if self.text[at : at + 1] != "=":
            raise self._malformed("a key is malformed", at)
        return keys, at + 1

    def _written(self, value: Any, indent: str | None = None) -> str:
        if isinstance(value, Mapping):
            return f"{{ {', '.join(self._member((key,), each, None) for key, each in value.items())} }}"
        if isinstance(value, list):
            return f"[{', '.join(map(self._written, value))}]"
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")

    def _member(self, path: Path, value: Any, indent: str | None) -> str:
        return f"{self._dotted(path)} = {self._written(value)}"

    def _dotted(self, path: Path) -> str:
        return ".".join(str(key) if self.NAME.fullmatch(str(key)) else self._written(key) for key in path)


FORMATS: Mapping[str, type[ConfigText]] = {"json": JsonText, "toml": TomlText}
