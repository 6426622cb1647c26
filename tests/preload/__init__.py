"""What the fork servers of `tests.warm` load once, for all the processes that they make."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module

NOWHERE = "/nowhere"  # a home that nobody makes or opens


@contextmanager
def staying() -> Iterator[None]:
    """What is made inside of the block stays: there is no search for garbage in it, then or later.

    A search while modules load takes a quarter of the time and finds next to nothing; one in a fork would copy all
    that the fork shares.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        if was_enabled:
            gc.enable()


@staying()
def nexus(command: str, modules: str) -> None:
    """Load Nexus as far as `command` does before it looks at its store, all commands of its kind, and `modules`."""
    for name in [name for name in os.environ if name.startswith(("NEXUS_", "DJANGO_"))]:
        del os.environ[name]
    os.environ["NEXUS_HOME"] = NOWHERE
    import_module("tests.preload.libraries")
    import django
    from django.core.management import get_commands, load_command_class

    from nexus_site import launch

    launch.choose_settings(command)
    lean = launch.is_lean(command)
    if lean:
        launch._populate()
    else:
        django.setup()
    for name, app in get_commands().items():
        if app in launch.APPS and launch.is_lean(name) == lean:
            load_command_class(app, name)
    for module in modules.split():
        import_module(module)


def forget() -> None:
    """In a fork: let the settings, and what has kept one, be read anew from this process's environment."""
    from django.apps import apps
    from django.conf import settings
    from django.db import connections
    from django.db.utils import ConnectionHandler
    from django.utils.functional import empty

    from nexus.core.logs import redact_logs
    from nexus_site import launch

    for name in ("nexus_site.settings", "nexus_site.settings_agent"):
        sys.modules.pop(name, None)
    launch.resolved.cache_clear()
    settings._wrapped = empty
    vars(connections).clear()
    ConnectionHandler.__init__(connections)
    # Of all that an app does once it is ready, only this is for what the settings make anew.
    vars(apps)["populate"] = lambda _: redact_logs()
