"""Django settings of an agent's stdio process: only the core apps, because every agent's start imports them."""

from __future__ import annotations

import logging.config

from nexus.core.config import CoreSettings
from nexus.core.database.store import store_of
from nexus_site import launch

NEXUS: CoreSettings = launch.resolved().settings
NEXUS_SOURCES = launch.resolved().sources

INSTALLED_APPS = launch.APPS
DATABASES = {"default": store_of(NEXUS).django_settings(NEXUS)}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
USE_TZ = True
TIME_ZONE = "UTC"
SECRET_KEY = "unused: this process signs nothing"  # noqa: S105
LOGGING_CONFIG = None  # otherwise Django's default logging comes first, and imports its mail and debug pages
logging.config.dictConfig(launch.LOGGING)
