"""Forms that an agent process wants filled in: a question to the operators, whose words become values."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from acp.schema import (
    BooleanPropertySchema,
    ElicitationSchema,
    EnumOption,
    IntegerPropertySchema,
    MultiSelectPropertySchema,
    NumberPropertySchema,
    StringMultiSelectItems,
    StringPropertySchema,
)

from nexus.control.models import Question
from nexus.control.runners import acp_elicitation
from nexus.control.worker.scheduling import Worker
from nexus.core.waiting import WRITERS, in_thread, waiter
from tests.control.acp_here import taken_here
from tests.control.playing import pool
from tests.control.pool import Take, acreate, asend, ended

FIELDS = {
    "color": StringPropertySchema(enum=["red", "blue"]),
    "size": StringPropertySchema(one_of=[EnumOption(const="l", title="Large")]),
    "count": IntegerPropertySchema(),
    "share": NumberPropertySchema(),
    "sure": BooleanPropertySchema(title="Sure"),
    "days": MultiSelectPropertySchema(items=StringMultiSelectItems(type="string", enum=["mon", "tue"])),
    "note": StringPropertySchema(),
}
TYPES = {"count": "integer", "share": "number", "sure": "boolean", "days": "array"}


def form(*names: str, required: tuple[str, ...] = ()) -> ElicitationSchema:
    """A form with some of the fields."""
    fields = {name: {"type": TYPES.get(name, "string"), **FIELDS[name].model_dump(by_alias=True)} for name in names}
    return ElicitationSchema.model_validate({"properties": fields, "required": list(required)})


@pytest.mark.parametrize(
    ("names", "words", "values"),
    [
        (["note"], "a: b\nc", {"note": "a: b\nc"}),
        (["color"], " red ", {"color": "red"}),
        (["size", "count"], "size: Large\n\ncount: 7", {"size": "l", "count": 7}),
        (
            ["share", "sure", "days"],
            "share: 0.5\nsure: Yes\ndays: mon, tue",
            {"share": 0.5, "sure": True, "days": ["mon", "tue"]},
        ),
        (["sure", "note"], "sure: off\nnote:", {"sure": False}),
    ],
)
def test_words_fill_in_a_form(names: list[str], words: str, values: dict[str, Any]) -> None:
    assert acp_elicitation.values_in(form(*names), words) == values


@pytest.mark.parametrize(
    ("names", "words", "why"),
    [
        (["color"], "green", "'color' takes no 'green'"),
        (["count"], "many", "'count' takes no"),
        (["sure"], "perhaps", "'sure' takes no"),
        (["days"], "mon, fri", "'days' takes no"),
        (["count", "sure"], "7", "no `name: value`"),
        (["count", "sure"], "x: 1", "no field 'x'"),
        (["count", "sure"], "sure: yes", "'count' is missing"),
    ],
)
def test_words_that_do_not_fit_are_told(names: list[str], words: str, why: str) -> None:
    with pytest.raises(acp_elicitation.NoAnswer, match=why):
        acp_elicitation.values_in(form(*names, required=("count",) if "count" in names else ()), words)


async def test_an_operator_fills_in_its_form_until_it_fits(worker: Worker, plays: Callable[[Take], None]) -> None:
    plays(taken_here())
    await acreate("ann")
    async with waiter().park(lambda event: event.type == "question.asked") as parked:
        turn_id = await asend("ann", "form")
        for words, shown in (("green", "color (string, required); one of: red, blue"), ("blue", "'green'")):
            while not (asked := await in_thread(WRITERS, lambda: list(Question.objects.open()))):
                await parked.wait(5)
            assert asked[0].title == "Which one?" and shown in asked[0].detail
            answer = partial(pool, "pool_answer", question_id=asked[0].pk, words=words)
            await in_thread(WRITERS, answer)
    assert (await ended(turn_id)).answer == 'accept {"color": "blue"}'
