"""Django settings of an agent's stdio process: the core apps alone, because every agent pays their import at start."""

from __future__ import annotations

import logging.config

from coordination.knobs import Knobs
from nexus_site import launch

NEXUS: Knobs = launch.resolved().knobs
NEXUS_SOURCES = launch.resolved().sources

INSTALLED_APPS = launch.CORE_APPS
DATABASES = {"default": launch.database(NEXUS)}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
USE_TZ = True
TIME_ZONE = "UTC"
SECRET_KEY = "unused: this process signs nothing"  # noqa: S105
LOGGING_CONFIG = None  # Django's own defaults come first otherwise, and import its mail and debug pages
logging.config.dictConfig(launch.LOGGING)
