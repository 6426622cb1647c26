"""Libraries alone: none that looks at settings, or keeps a thread, an open file or an event loop (Twisted's reactor is
one)."""

import sys
from importlib import import_module

from tests.preload import staying

sys.dont_write_bytecode = False  # as what it is for; it was started with the flags of the Python that runs the tests

with staying():
    for name in """
        anyio._backends._asyncio channels.auth channels.generic.websocket channels.routing daphne.http_protocol
        daphne.ws_protocol django.contrib.admin django.contrib.admin.templatetags.admin_list django.contrib.auth.tokens
        django.contrib.messages.middleware django.contrib.postgres.fields django.contrib.sessions.backends.db
        django.contrib.sessions.middleware django.contrib.staticfiles.storage django.core.handlers.asgi
        django.core.management.commands.migrate django.db.backends.postgresql.base django.db.backends.sqlite3.base
        django.forms django.middleware.clickjacking django.middleware.common django.middleware.security
        django.template.defaulttags django.template.loader django.views.defaults django.views.generic
        django_filters.rest_framework unfold unfold.components unfold.paginator whitenoise.middleware
        rest_framework.negotiation rest_framework.response rest_framework.serializers twisted.internet.udp
        twisted.internet.unix
        mcp.server.lowlevel mcp.server.stdio mcp.server.streamable_http_manager pydantic
        filelock httpx httpx_sse jsonschema markdown_it nh3 prometheus_client psutil psycopg_pool
        pygments.formatters.html requests tomllib uuid_utils yaml
    """.split():
        import_module(name)
