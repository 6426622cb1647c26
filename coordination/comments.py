"""Comments of people on what agents made. They are drafts until all of them are sent as one message; then the agent
says what became of each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, TypeVar

from django.db import models
from django.db.models import Q, QuerySet
from pydantic import Field

from coordination.models import ID_LENGTH
from nexus.core.clock import now
from nexus.core.operations.errors import Code, NexusError, invalid
from nexus.core.operations.pages import newest

MOST_DRAFTS = 200  # about one thing
MOST_SHOWN = MOST_DRAFTS  # the newest, and so all drafts: a round sends every draft
LONGEST_TEXT, LONGEST_WORDS = 10_000, 4_000  # characters of a comment, and of what its agent says of it
LeftOff = Annotated[int, Field(description=f"How many older comments there are than the {MOST_SHOWN} shown.")]
C = TypeVar("C", bound="AbstractComment")


class CommentOutcome(models.TextChoices):
    """What became of a comment, as its agent says."""

    DONE = "done"
    DECLINED = "declined"
    ASKED = "asked"  # the agent has a question about it


class AbstractComment(models.Model):
    """A person's comment."""

    comment_id = models.CharField(primary_key=True, max_length=ID_LENGTH)
    quote = models.TextField(blank=True)  # what it is about, as it was when the comment was written
    text = models.TextField()
    author = models.CharField(max_length=ID_LENGTH)
    written_at = models.DateTimeField()
    sent_at = models.DateTimeField(null=True)
    recipient = models.CharField(max_length=ID_LENGTH, null=True)  # the agent that it was sent to
    outcome = models.CharField(max_length=16, choices=CommentOutcome, null=True)
    words = models.TextField(blank=True)  # of the agent, about the outcome
    answered_at = models.DateTimeField(null=True)

    class Meta:
        abstract = True


def latest(rows: QuerySet[C]) -> tuple[list[C], int]:
    """Return the comments that are shown, oldest first, and how many older ones there are."""
    return newest(rows, MOST_SHOWN)


def answered_once_sent(table: str) -> models.CheckConstraint:
    """Return the constraint that only a comment that was sent has an answer."""
    return models.CheckConstraint(
        condition=Q(outcome=None, answered_at=None)
        | Q(outcome__in=CommentOutcome.values, answered_at__isnull=False, sent_at__isnull=False),
        name=f"{table}_answered_once_sent",
    )


def check_text(text: str) -> None:
    """Check the text of a comment. Raises VALIDATION_ERROR."""
    if not text.strip():
        raise invalid("text must not be blank.", field="text")
    if len(text) > LONGEST_TEXT:
        raise invalid(f"text has at most {LONGEST_TEXT} characters.", field="text")


def check_words(words: str) -> None:
    """Check what an agent says of a comment. Raises VALIDATION_ERROR."""
    if len(words) > LONGEST_WORDS:
        raise invalid(f"words has at most {LONGEST_WORDS} characters.", field="words")


def check_room(drafts: Sequence[Any]) -> None:
    """Check that there may be one more draft. Raises INVALID_TRANSITION."""
    if len(drafts) >= MOST_DRAFTS:
        raise NexusError(Code.INVALID_TRANSITION, f"{MOST_DRAFTS} comments wait to be sent; send them first.")


def check_draft(comment: AbstractComment) -> None:
    """Check that a comment can still be changed. Raises INVALID_TRANSITION once it is sent."""
    if comment.sent_at is not None:
        raise NexusError(Code.INVALID_TRANSITION, "This comment was sent; write another one.")


def store_answer(comment: AbstractComment, outcome: str, words: str) -> None:
    """Store what became of a comment, inside a transaction."""
    comment.outcome, comment.words, comment.answered_at = CommentOutcome(outcome), words, now()
    comment.save(update_fields=["outcome", "words", "answered_at"])


def count_in_words(comments: Sequence[Any]) -> str:
    """Return the number of comments in words."""
    return f"{len(comments)} comment{'s' * (len(comments) != 1)}"


def quoted(text: str) -> str:
    """Return a text with a mark before each line, so that nothing in it passes for words of ours."""
    return "\n".join(f"| {line}" for line in text.splitlines())
