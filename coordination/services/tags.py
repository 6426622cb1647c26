"""The tags that operators may give to agents, and that targets may name."""

from __future__ import annotations

from collections.abc import Iterable

from coordination.errors import CoordinationCode
from coordination.models import Agent, Tag
from coordination.routing import Target, named_in, selectors_of
from coordination.services import audit
from nexus.core.clock import now
from nexus.core.database.store import write
from nexus.core.operations.errors import NexusError, invalid, not_found

NAMED = 5  # unknown tags that an error names


def create(*, key: str, value: str, description: str | None, operator: str) -> Tag:
    """Add a key to the catalog, or a value to a key; an empty value is the key itself.

    Raises VALIDATION_ERROR for one that is there, NOT_FOUND for a value whose key is not.
    """
    moment = now()
    with write():
        if value:
            _get(key, "")
        if Tag.objects.filter(key=key, value=value).exists():
            raise invalid(f"There is a tag {f'{key} {value}'.strip()!r} already.", field="value" if value else "key")
        tag = Tag.objects.create(key=key, value=value, description=description, created_at=moment)
        audit.record(operator, "tag.created", moment, key=key, value=value or None)
    return tag


def delete(*, key: str, value: str, operator: str) -> None:
    """Delete a value of a key, or a key with its values. Raises NOT_FOUND, TAG_IN_USE."""
    moment = now()
    with write():
        _get(key, value)
        tagged = Agent.everyone.filter(tags__isnull=False).values_list("agent_id", "tags")
        having = [name for name, tags in tagged if tags and key in tags and (not value or value in tags[key])]
        if having:
            raise NexusError(
                CoordinationCode.TAG_IN_USE,
                f"{len(having)} agents have this tag: agent_update takes it from them.",
                {"agents": having[:NAMED]},
            )
        rows = Tag.objects.filter(key=key)
        (rows.filter(value=value) if value else rows).delete()
        audit.record(operator, "tag.deleted", moment, key=key, value=value or None)


def check_target(target: Target | None) -> None:
    """Check that the catalog has the tags that a target names. Raises VALIDATION_ERROR."""
    for selector in selectors_of(target):
        check(named_in(selector), "target")


def check(pairs: Iterable[tuple[str, str]], field: str) -> None:
    """Check that the catalog has these pairs of keys and values. Raises VALIDATION_ERROR: a tag that is misspelled
    could match everyone."""
    wanted = dict.fromkeys(pairs)
    there = set(Tag.objects.filter(key__in={key for key, _ in wanted}).values_list("key", "value"))
    if unknown := [pair for pair in wanted if pair not in there]:
        named = ", ".join(" ".join(pair).strip() for pair in unknown[:NAMED])
        raise invalid(f"The catalog of tags does not have {named[:400]}; tag_list shows it.", field=field)


def _get(key: str, value: str) -> Tag:
    tag = Tag.objects.filter(key=key, value=value).first()
    if tag is None:
        raise not_found("tag", f"{key} {value}".strip())
    return tag
