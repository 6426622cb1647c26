"""Verbs that are declared over operations: what their command lines take, ask and print."""

from __future__ import annotations

import argparse
import io
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, Literal

import pytest
from pydantic import Field

from nexus.core.operations.caller import Caller
from nexus.core.operations.errors import NexusError, not_found
from nexus.core.operations.parameters import Params
from nexus.core.operations.registry import TOOLSETS, Toolset
from nexus.core.verbs import Option, Verb, VerbsCommand


class BoxFill(Params):
    project_root: str
    box_id: Annotated[str, Field(description="Which box, 100 % sure.")]
    colour: Annotated[Literal["red", "blue"], Field(description="Its colour.")] = "red"
    weight: int | None = None
    labels: list[str] | None = None
    heavy: bool = False
    lid: Annotated[bool, Field(description="Without a lid.")] = True


class BoxList(Params):
    owner: str | None = None
    limit: int | None = None


CALLS: list[Any] = []
pytestmark = pytest.mark.usefixtures("db")


@pytest.fixture(autouse=True)
def boxes() -> Iterator[None]:
    toolset = Toolset("boxes", "Boxes.")
    CALLS.clear()

    @toolset.operation(BoxFill)
    def box_fill(p: BoxFill, caller: Caller) -> dict[str, Any]:
        """Fill a box. It is closed then."""
        CALLS.append(p.model_dump(exclude_unset=True))
        if p.box_id == "none":
            raise not_found("box", p.box_id)
        return {"box": {"box_id": p.box_id}, "more": 1}

    @toolset.operation(BoxList)
    def box_list(p: BoxList, caller: Caller) -> dict[str, Any]:
        """All boxes."""
        CALLS.append(p.model_dump(exclude_unset=True))
        return {"boxes": [] if p.owner else [{"box_id": "b1", "kg": 2}], "has_more": True, "next_cursor": "b1"}

    yield
    del TOOLSETS["boxes"]


def known(owner: str) -> None:
    if owner == "typo":
        raise not_found("owner", owner)


OPEN = Option("lid", "--open")


class Boxes(VerbsCommand):
    toolset = "boxes"
    help = "Boxes."

    def verbs(self) -> Sequence[Verb]:
        return (
            Verb(
                "list",
                operation="box_list",
                options=[Option("owner", exists=known), "limit"],
                rows="boxes",
                columns={"box": "box_id", "weight": lambda row: f"{row['kg']} kg"},
                examples=["nexus boxes list"],
            ),
            Verb(
                "fill",
                operation="box_fill",
                words=["box_id"],
                options=["colour", "weight", "heavy", "project_root", Option("labels", "--label"), OPEN],
                shows="box",
                examples=["nexus boxes fill b1"],
            ),
            Verb("empty", operation="box_fill", words=["box_id"], options=["project_root"], each=True),
            Verb("burn", operation="box_fill", words=["box_id"], options=["project_root"], asks="Burn {box_id}?"),
        )


def parser() -> argparse.ArgumentParser:
    return Boxes().create_parser("nexus", "boxes")


def ran(*words: str) -> tuple[int, str, str]:
    command = Boxes(stdout=io.StringIO(), stderr=io.StringIO())
    code = command.act(vars(parser().parse_args(words)))
    return code, command.stdout.getvalue(), command.stderr.getvalue()


def options(*words: str) -> Mapping[str, Any]:
    return {name: value for name, value in vars(parser().parse_args(words)).items() if name in BoxFill.model_fields}


def test_it_takes_what_the_operation_does_in_its_types() -> None:
    given = "--colour blue --weight 7 --label a --label b --heavy --open --project /p"
    assert options("fill", "b1", *given.split()) == {
        "box_id": "b1",
        "colour": "blue",
        "weight": 7,
        "labels": ["a", "b"],
        "heavy": True,
        "lid": False,
        "project_root": "/p",
    }


def test_it_leaves_to_the_operation_what_was_not_given() -> None:
    ran("fill", "b1")
    assert CALLS == [{"project_root": ".", "box_id": "b1"}]


def test_it_refuses_what_no_argument_can_be(capsys: pytest.CaptureFixture[str]) -> None:
    for words in ("fill b1 --colour green", "fill b1 --weight x", "fill b1 --nope", "fill"):
        with pytest.raises(SystemExit):
            parser().parse_args(words.split())
        assert "CONFIG_ERROR" in capsys.readouterr().err


def test_its_help_is_the_operations(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parser().parse_args(["fill", "--help"])
    shown = capsys.readouterr().out
    for words in ("Fill a box. It is closed then.", "Which box, 100 % sure.", "Its colour. [red]", "Without a lid.",
                  "The project's directory. [the current one]", "nexus boxes fill b1"):  # fmt: skip
        assert words in shown
    assert "nexus boxes list\n  nexus boxes fill b1\n\nexit codes" in parser().format_help()
    assert "3  there is none" in parser().format_help()


def test_it_shows_rows_as_a_table_and_says_where_the_next_page_is() -> None:
    code, out, err = ran("list")
    assert (code, out) == (0, "box  weight\nb1   2 kg\n")
    assert "--cursor b1" in err and CALLS == [{"limit": 100}]


def test_it_tells_a_list_without_rows_from_a_mistyped_name() -> None:
    assert ran("list", "--owner", "ann")[:2] == (3, "none\n")
    with pytest.raises(NexusError, match="typo"):
        ran("list", "--owner", "typo", "--json")


def test_it_shows_people_a_part_and_scripts_all() -> None:
    assert ran("fill", "b1")[1] == "box id  b1\n"
    assert '"more": 1' in ran("fill", "b1", "--json")[1]


def test_it_acts_on_each_by_itself() -> None:
    code, out, err = ran("empty", "b1", "none", "b2")
    assert code == 1 and out.count("box_id") == 2 and "none: NOT_FOUND" in err


def test_it_asks_before_it_acts(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    monkeypatch.setattr(VerbsCommand, "ask", lambda self, question: asked.append(question))
    assert ran("burn", "b1") == (0, "Nothing was changed.\n", "")
    assert (asked, CALLS) == (["Burn b1?"], [])
    assert ran("burn", "b1", "--yes")[0] == 0 and len(CALLS) == 1
