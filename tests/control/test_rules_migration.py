"""Permissions that were given always before there were rules become rules."""

from __future__ import annotations

from datetime import UTC, datetime
from importlib import import_module

import pytest
from django.apps import apps

from nexus.control.models import PermissionRule, Question

MOMENT = datetime(2026, 3, 1, tzinfo=UTC)
migration = import_module("nexus.control.migrations.0014_permission_rules")


@pytest.mark.parametrize(
    ("subject", "rules"),
    [
        ("run", [("run", "")]),
        ("write_file /srv/a b /srv/c*", [("write", "/srv/a b"), ("write", r"/srv/c\*")]),
        ("read_file /srv/a", [("read", "/srv/a")]),
        ("grep Find it", [("other", "grep Find it")]),
        ("fetch https://example.org/?a", [("network", r"https://example.org/\?a")]),
        ("other mcp__x__y", [("other", "other mcp__x__y")]),
        ("make migrate", [("other", "make migrate")]),
        ("x" * 2_000, []),
    ],
)
def test_what_was_allowed_always_is_a_rule(db: None, subject: str, rules: list[tuple[str, str]]) -> None:
    for always in (True, False):
        Question.objects.create(
            question_id=f"qst_{always}", agent_id="ann", kind="permission", title="May I?", subject=subject,
            status="allowed", always=always, answered_by="bo", asked_at=MOMENT, expires_at=MOMENT, ended_at=MOMENT,
        )  # fmt: skip
    migration.keep_what_is_always_allowed(apps, None)
    found = PermissionRule.objects.order_by("rule_id")
    assert [(rule.kind, rule.pattern) for rule in found] == rules
    assert {(rule.effect, rule.scope, rule.name, rule.question_id, rule.written_by) for rule in found} <= {
        ("allow", "agent", "ann", "qst_True", "bo")
    }
