"""Django settings of the hub and of every command that needs the whole project."""

from __future__ import annotations

from coordination.knobs import Knobs
from nexus_site import launch
from nexus_site.launch import CORE_APPS

NEXUS: Knobs = launch.resolved().knobs
NEXUS_SOURCES = launch.resolved().sources

INSTALLED_APPS = [*CORE_APPS]
DATABASES = {"default": launch.database(NEXUS)}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
USE_TZ = True
TIME_ZONE = "UTC"
SECRET_KEY = "unused: nothing is signed yet"  # noqa: S105
LOGGING = launch.LOGGING
