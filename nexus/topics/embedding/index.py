"""Which messages have a vector of a model, and which still need one.

Every message up to the last one with a vector has one, perhaps of another model or of an older text: vectors are made
in the order of the messages, and a trigger clears the model where a text changes.
"""

from __future__ import annotations

from collections.abc import Sequence

from django.db.models import Max, QuerySet
from django.db.models.functions import Length

from nexus.core.database.store import write
from nexus.topics.models import Embedding, TopicMessage

Text = tuple[int, str]  # a document and its text
STALE = ""  # the model of a vector that must be made again


def pending(identity: str, limit: int) -> list[Text]:
    """Return at most `limit` messages without a vector of a model, new ones first. The cost does not depend on their
    number."""
    found = list(_fresh().order_by("document").values_list("document", "content_markdown")[:limit])
    for others in _of_others(identity):
        found += others.values_list("message__document", "message__content_markdown")[: limit - len(found)]
    return found


def count_missing(identity: str = STALE) -> int:
    """Count the messages without a vector of a model; without a model, those without any usable vector."""
    others = _of_others(identity) if identity else [Embedding.objects.filter(model=STALE)]
    return _fresh().count() + sum(each.count() for each in others)


def _fresh() -> QuerySet[TopicMessage]:
    last = Embedding.objects.aggregate(last=Max("message_id"))["last"] or 0
    return TopicMessage.objects.filter(document__gt=last)


def _of_others(identity: str) -> list[QuerySet[Embedding]]:
    """Return the vectors of other models, as two ends of an index: `<>` would read all of it."""
    return [Embedding.objects.filter(model__lt=identity), Embedding.objects.filter(model__gt=identity)]


def store_vectors(identity: str, texts: Sequence[Text], vectors: Sequence[bytes]) -> None:
    """Store the vectors of texts. A message deleted meanwhile gets none; one that was changed gets another one
    later."""
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


def mend(identity: str, size: int) -> None:
    """Repair the index after damage or a foreign write: delete vectors without a message, and mark for a new vector
    those of another size in bytes than the model's, and the messages that were skipped.

    Reads the size of each vector.
    """
    strays = Embedding.objects.exclude(message__in=TopicMessage.objects.values("document"))
    misfits = Embedding.objects.annotate(bytes=Length("vector")).filter(model=identity).exclude(bytes=size)
    last = Embedding.objects.aggregate(last=Max("message_id"))["last"] or 0
    passed_over = TopicMessage.objects.filter(document__lt=last, embedding=None).values_list("document", flat=True)
    if strays.exists() or misfits.exists() or passed_over.exists():
        with write():
            strays.delete()
            misfits.update(model=STALE)
            Embedding.objects.bulk_create(
                Embedding(message_id=document, model=STALE, vector=b"") for document in passed_over
            )
