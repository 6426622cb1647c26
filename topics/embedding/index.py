"""Which messages have a vector of a model, and which are still to get one.

Every message up to the last that has a vector has one, if only of another model or of an older text: vectors are made
in the order of the messages, and a trigger takes the model off where a text changes.
"""

from __future__ import annotations

from collections.abc import Sequence

from django.db.models import Max, Q
from django.db.models.functions import Length

from core.database import write
from topics.models import Embedding, TopicMessage

Text = tuple[int, str]  # a document and what it says
STALE = ""  # the model of a vector that is of use no more


def pending(identity: str, limit: int) -> list[Text]:
    """Messages without a vector of a model, at most `limit`: new ones first. Costs the same however many there are."""
    last = Embedding.objects.aggregate(last=Max("message_id"))["last"] or 0
    fresh = TopicMessage.objects.filter(document__gt=last).order_by("document")
    found = list(fresh.values_list("document", "content_markdown")[:limit])
    for other in (Q(model__lt=identity), Q(model__gt=identity)):  # two ends of an index: `<>` would read all of it
        rows = Embedding.objects.filter(other).values_list("message__document", "message__content_markdown")
        found += rows[: limit - len(found)]
    return found


def keep(identity: str, texts: Sequence[Text], vectors: Sequence[bytes]) -> None:
    """Store the vectors of texts; what was deleted meanwhile gets none, what was changed gets another one later."""
    with write():
        said = dict(
            TopicMessage.objects.filter(pk__in=[document for document, _ in texts]).values_list(
                "document", "content_markdown"
            )
        )
        rows = [
            Embedding(message_id=document, model=identity if said[document] == text else STALE, vector=vector)
            for (document, text), vector in zip(texts, vectors, strict=True)
            if document in said
        ]
        Embedding.objects.bulk_create(
            rows, update_conflicts=True, unique_fields=["message"], update_fields=["model", "vector"]
        )


def remaining(identity: str) -> int:
    """How many messages have no vector of a model; counts them all."""
    return TopicMessage.objects.count() - Embedding.objects.filter(model=identity).count()


def set_aside(identity: str, size: int) -> None:
    """Have the vectors of a model made anew that are not of its size in bytes; reads each vector's size."""
    misfits = Embedding.objects.annotate(bytes=Length("vector")).filter(model=identity).exclude(bytes=size)
    if misfits.exists():
        with write():
            misfits.update(model=STALE)
