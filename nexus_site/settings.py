"""Django settings of the hub and of every command that needs the whole project."""

from __future__ import annotations

from pathlib import Path

from nexus.core import access
from nexus.core.config import CoreSettings
from nexus.core.database.store import store_of
from nexus.web import theme
from nexus_site import launch
from nexus_site.serving.bounds import MAX_BODY_BYTES

BASE_DIR = Path(__file__).resolve().parent.parent

NEXUS: CoreSettings = launch.resolved().settings
NEXUS_SOURCES = launch.resolved().sources

DATABASES = {"default": store_of(NEXUS).django_settings(NEXUS)}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
LOGGING = launch.LOGGING
USE_TZ = True
TIME_ZONE = "UTC"
SECRET_KEY = "replaced by `serve` with the home's own"  # noqa: S105
ALLOWED_HOSTS = access.LOOPBACK_NAMES  # `serve` sets both for its address
NEXUS_REAPER = False  # `serve --reaper` sets it
NEXUS_RELAYS = False  # `serve` sets it: the home's only server serves agents on stdio, too
NEXUS_TRUSTS_LOCAL = True  # a direct local request is the operator's; never true beyond loopback

INSTALLED_APPS = [
    "unfold.apps.BasicAppConfig",
    "unfold.contrib.filters",
    "nexus.dashboard.apps.NexusAdminConfig",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "channels",
    "rest_framework",
    "django_filters",
    "drf_spectacular",
    "drf_spectacular_sidecar",
    *launch.APPS,
    "nexus.web",
    "nexus.dashboard",
]
MESSAGE_STORAGE = "nexus.web.page.Messages"
LOGIN_REDIRECT_URL = "admin:index"  # the target of a login whose `next` is on another host
AUTHENTICATION_BACKENDS = ["django.contrib.auth.backends.ModelBackend", "nexus.web.login.ByToken"]
MIDDLEWARE = [
    "django.middleware.security.SecurityMiddleware",
    "nexus.web.middleware.ContentSecurityPolicy",
    "nexus_site.serving.django.static_files",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "nexus.web.middleware.LocalOperator",
    "nexus.web.middleware.MarkdownBudget",
    "nexus.web.middleware.StoreTrouble",
    "coordination.switcher.ChosenWorkspace",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
]
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [BASE_DIR / "templates"],
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ]
        },
    }
]
ROOT_URLCONF = "nexus_site.urls"
ASGI_APPLICATION = "nexus_site.asgi.application"
STATIC_URL = "/static/"
STORAGES = {"staticfiles": {"BACKEND": "nexus.web.page.StaticFiles"}}
WHITENOISE_USE_FINDERS = True
UNFOLD = theme.UNFOLD
DATA_UPLOAD_MAX_MEMORY_SIZE = MAX_BODY_BYTES

REST_FRAMEWORK = {
    "DEFAULT_AUTHENTICATION_CLASSES": ["nexus.core.rest.authentication.CallerAuthentication"],
    "DEFAULT_PERMISSION_CLASSES": [],  # the authentication refuses strangers; the dispatch checks everything else
    "DEFAULT_RENDERER_CLASSES": ["nexus.core.rest.errors.EnvelopeRenderer"],
    "DEFAULT_PARSER_CLASSES": ["nexus.core.rest.errors.JsonObjectParser"],
    "DEFAULT_CONTENT_NEGOTIATION_CLASS": "nexus.core.rest.errors.OnlyJson",
    "DEFAULT_SCHEMA_CLASS": "nexus.core.rest.schema.EnvelopeSchema",
    "DEFAULT_METADATA_CLASS": None,  # it needs serializers, which are not used: OPTIONS is not allowed
    "EXCEPTION_HANDLER": "nexus.core.rest.errors.on_error",
    "DATETIME_FORMAT": "%Y-%m-%dT%H:%M:%S.%fZ",  # the format of `nexus.core.clock.iso`
}
SPECTACULAR_SETTINGS = {
    "TITLE": "Nexus",
    "DESCRIPTION": "Where a team of coding agents coordinates. Every answer is an envelope: ok, and data or error.",
    "VERSION": "v1",
    "OAS_VERSION": "3.1.0",
    "SCHEMA_PATH_PREFIX": "/api/v1",
    "SERVE_INCLUDE_SCHEMA": False,
    "POSTPROCESSING_HOOKS": ["nexus.core.rest.schema.add_operations"],
    "SWAGGER_UI_DIST": "SIDECAR",
    "SWAGGER_UI_FAVICON_HREF": "SIDECAR",
}
