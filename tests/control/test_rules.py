"""What agents of the pool may do and give, held against a naive statement over a small tree of paths."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations, product

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from nexus.control.permissions import rules
from nexus.control.permissions.rules import Broken, Permissions, Preset, RequestedPermissions, grant

TREE = ["/", "/w", "/w/a", "/w/a/b", "/w/ab", "/w/c", "/x"]  # /w/ab begins as /w/a does, and lies beside it
LOWER = {"trusted": ["sandboxed", "worker"], "sandboxed": [], "worker": []}  # what an agent may create, in words
TOOLS = ["create_agent", "read_file", "run", "write_file"]
FILES = {"worker": "r", "sandboxed": "rw", "trusted": "rw"}


def below(path: str, root: str) -> bool:
    """Whether a path of the tree lies at or below another: they share its parts."""
    parts, of_root = [p for p in path.split("/") if p], [p for p in root.split("/") if p]
    return parts[: len(of_root)] == of_root


def reads(may: Permissions) -> set[str]:
    return {path for path in TREE if rules.may_read(may, path)}


def writes(may: Permissions) -> set[str]:
    return {path for path in TREE if rules.may_write(may, path)}


def uses(may: Permissions) -> set[str]:
    return {tool for tool in rules.TOOLS if rules.may_use(may, tool)}


presets = st.sampled_from([None, "worker", "sandboxed", "trusted"])
paths = st.sampled_from(TREE)
wishes = st.builds(
    RequestedPermissions,
    preset=presets | st.sampled_from(["yolo", "bogus", ""]),
    cwd=st.none() | paths,
    write_paths=st.none() | st.lists(paths, max_size=3).map(tuple),
    disabled_tools=st.frozensets(st.sampled_from([*TOOLS, "bogus"]), max_size=2),
)


@st.composite
def chains(draw: st.DrawFn) -> list[Permissions]:
    """A line of agents, each granted below the one before, by itself or by an operator."""
    line: list[Permissions] = []
    for _ in range(draw(st.integers(1, 7))):
        by_parent = bool(line) and draw(st.booleans())
        try:
            granted = grant(draw(wishes), parent=line[-1] if line else None, default_cwd="/w", by_parent=by_parent)
        except Broken:
            continue
        line.append(granted)
    assume(line)
    return line


@given(chains())
def test_no_descendant_may_more_than_any_ancestor(line: list[Permissions]) -> None:
    for older, younger in combinations(line, 2):
        assert reads(younger) <= reads(older)
        assert writes(younger) <= writes(older)
        assert uses(younger) <= uses(older)
        assert older.disabled_tools <= younger.disabled_tools
    assert [agent.depth for agent in line] == list(range(len(line))) and len(line) <= 6


@given(chains())
def test_it_reads_and_writes_where_the_contract_says(line: list[Permissions]) -> None:
    for may in line:
        assert reads(may) == {path for path in TREE if below(path, may.cwd)}
        allowed = {path for path in TREE if any(below(path, root) for root in may.write_paths)}
        assert writes(may) == (allowed if "w" in FILES[may.preset] else set())
        assert writes(may) <= reads(may)
        assert ("run" in uses(may)) <= (may.preset == Preset.TRUSTED)
        assert rules.may_create(may) <= (may.preset == Preset.TRUSTED)


def parents() -> Iterator[Permissions | None]:
    yield None
    for preset, cwd, write, disabled, depth in product(
        Preset, ["/w", "/w/a"], [(), ("/w/a",)], [frozenset(), frozenset({"create_agent"}), frozenset({"run"})], [0, 5]
    ):
        if not (write and preset is Preset.WORKER):
            yield Permissions(preset, cwd, write, disabled, depth)


def refusals(wish: RequestedPermissions, parent: Permissions | None, by_parent: bool) -> set[str]:
    """Every rule that a wish breaks, stated one by one."""
    preset, cwd = wish.preset or "sandboxed", wish.cwd or (parent.cwd if parent else "/w")
    broken = set()
    if wish.preset == "yolo":
        broken.add("yolo")
    elif wish.preset not in (None, "worker", "sandboxed", "trusted"):
        broken.add("preset")
    if parent is not None:
        if parent.preset != "trusted" or "create_agent" in parent.disabled_tools:
            broken.add("agents")
        if preset not in LOWER[parent.preset] and (by_parent or preset != parent.preset):
            broken.add("ceiling")
        if parent.depth + 1 > 5:
            broken.add("depth")
        if not below(cwd, parent.cwd):
            broken.add("cwd")
    if "bogus" in wish.disabled_tools:
        broken.add("tools")
    for path in wish.write_paths or ():
        within_parent = parent is None or any(below(path, root) for root in parent.write_paths)
        if preset == "worker" or not below(path, cwd) or not within_parent:
            broken.add("write_paths")
    return broken


def test_it_grants_all_that_no_rule_refuses_and_names_the_rule_where_one_does() -> None:
    """Every wish and every parent of a small world."""
    tools = [frozenset[str](), frozenset({"run"}), frozenset({"bogus"})]
    written = [None, (), ("/w/a",), ("/w/a/b", "/w/c"), ("/w/ab",)]
    asked = [None, "worker", "sandboxed", "trusted", "yolo", "bogus"]
    seen = set()
    for preset, cwd, write, disabled in product(asked, [None, "/w/a", "/w/ab", "/"], written, tools):
        wish = RequestedPermissions(preset, cwd, write, disabled)
        for parent, by_parent in product(parents(), (True, False)):
            expected = refusals(wish, parent, by_parent and parent is not None)
            try:
                granted = grant(wish, parent=parent, default_cwd="/w", by_parent=by_parent)
            except Broken as broken:
                assert broken.rule in expected, (wish, parent, by_parent)
                seen.add(broken.rule)
            else:
                assert not expected, (wish, parent, by_parent)
                assert granted.preset == (wish.preset or "sandboxed")
                assert granted.disabled_tools == wish.disabled_tools | (parent.disabled_tools if parent else set())
                if wish.write_paths is not None:
                    assert granted.write_paths == wish.write_paths
    assert seen == {"yolo", "preset", "agents", "ceiling", "depth", "cwd", "tools", "write_paths"}


def test_what_is_not_said_is_the_parents_directory_and_for_trusted_ones_its_write_paths() -> None:
    root = grant(RequestedPermissions("trusted"), parent=None, default_cwd="/w", by_parent=False)
    assert (root.cwd, root.write_paths) == ("/w", ("/w",))
    narrow = Permissions(Preset.TRUSTED, "/w", ("/w/a", "/w/c"))
    child = grant(RequestedPermissions("trusted"), parent=narrow, default_cwd="/x", by_parent=False)
    assert (child.cwd, child.write_paths) == ("/w", ("/w/a", "/w/c"))
    lower = grant(RequestedPermissions("trusted", cwd="/w/a"), parent=narrow, default_cwd="/x", by_parent=False)
    assert (lower.cwd, lower.write_paths) == ("/w/a", ("/w/a",))
    quiet = grant(RequestedPermissions(), parent=narrow, default_cwd="/x", by_parent=True)
    assert (quiet.preset, quiet.write_paths) == (Preset.SANDBOXED, ())


def test_five_deep_is_reached_and_no_deeper() -> None:
    line = [grant(RequestedPermissions("trusted"), parent=None, default_cwd="/w", by_parent=False)]
    for _ in range(5):
        line.append(grant(RequestedPermissions("trusted"), parent=line[-1], default_cwd="/", by_parent=False))
    assert line[-1].depth == 5
    with pytest.raises(Broken) as broken:
        grant(RequestedPermissions("worker"), parent=line[-1], default_cwd="/", by_parent=True)
    assert broken.value.rule == "depth"


ALPHABET = set("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-.")


@given(
    st.text(st.sampled_from(sorted(ALPHABET)) | st.sampled_from("/\\\n\x00 äà٣"), max_size=70) | st.text(max_size=70)
)
def test_a_name_is_letters_digits_and_three_signs_and_no_part_of_a_path(name: str) -> None:
    rest = name.removeprefix(".")
    expected = set(name) <= ALPHABET and 1 <= len(rest) <= 62 and not rest.startswith(".") and ".." not in name
    assert rules.is_agent_id(name) == expected


@pytest.mark.parametrize("length", [62, 63])
def test_a_name_has_62_characters_and_a_dot_in_front_is_one_more(length: int) -> None:
    assert rules.is_agent_id("x" * length) == rules.is_agent_id("." + "x" * length) == (length == 62)
