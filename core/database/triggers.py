"""The triggers that apps bring, made anew after every migrate."""

from __future__ import annotations

from typing import Any

from django.apps import AppConfig
from django.db.models.signals import post_migrate

from core.apps import NexusAppConfig
from core.database import store


def keep_triggers() -> None:
    """From here on: a migration that rebuilds a table drops its triggers without a word, so they are made again."""
    post_migrate.connect(_install, dispatch_uid=__name__)


def _install(sender: AppConfig, **_: Any) -> None:
    if isinstance(sender, NexusAppConfig):
        store().install(sender.database_objects())
