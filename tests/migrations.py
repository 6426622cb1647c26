"""The migrations of Nexus's own apps as they were before any was replaced."""

from __future__ import annotations

from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.migrations.loader import MigrationLoader

from nexus.core.apps import own_labels

Key = tuple[str, str]


def loader_of_replaced(database: BaseDatabaseWrapper | None = None) -> MigrationLoader:
    """Django's loader, without the migrations that replace others."""
    loader = MigrationLoader(database, replace_migrations=False)
    for key, migration in loader.replacements.items():
        loader.graph.remove_replacement_node(key, migration.replaces)
    loader.replacements.clear()
    return loader


def _steps() -> list[Key]:
    graph = loader_of_replaced().graph
    plan = [key for leaf in graph.leaf_nodes() if leaf[0] in own_labels() for key in graph.forwards_plan(leaf)]
    return [key for key in dict.fromkeys(plan) if key[0] in own_labels()]


STEPS = _steps()  # in the order in which they run
