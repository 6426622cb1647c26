"""The conversation around a message, however long it has become."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from inbox.models import Message
from inbox.monitoring import thread
from tests.conftest import Call


@pytest.fixture
def answer(call: Call, project: str) -> Callable[..., str]:
    """Send a message, below a parent where one is named; its id."""

    def sent(parent: str | None = None) -> str:
        letter = {"project_root": project, "from_agent_id": "ana", "subject": "s", "body": "b"}
        return str(call("message_create", **letter, parent_message_id=parent)["message_id"])

    return sent


def ids(of: str, limit: int) -> list[str]:
    return [row.message_id for row in thread(Message.objects.get(pk=of), limit)]


def test_it_is_the_same_from_every_message_of_it(answer: Callable[..., str]) -> None:
    root = answer()
    first, second = answer(root), answer(root)
    all_of_it = sorted([root, first, second, answer(first)])
    assert [ids(of, 200) for of in all_of_it] == [all_of_it] * 4


def test_it_holds_the_message_that_was_asked_for_and_what_is_nearest(answer: Callable[..., str]) -> None:
    chain = [answer()]
    for _ in range(9):
        chain.append(answer(chain[-1]))
    assert ids(chain[7], 3) == chain[6:9]
    assert ids(chain[9], 4) == chain[6:]
    assert ids(chain[0], 1) == chain[:1]


def test_it_holds_one_of_many_answers_to_the_same_message(answer: Callable[..., str]) -> None:
    root = answer()
    answers = [answer(root) for _ in range(9)]
    assert ids(answers[8], 4) == [root, answers[0], answers[1], answers[8]]
