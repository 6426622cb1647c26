"""The settings of the test suite: a home of its own, and a store that threads and processes share."""

import os
import tempfile

from tests.postgres import SERVER, url

os.environ["NEXUS_HOME"] = tempfile.mkdtemp(prefix="nexus-tests-")
os.environ.pop("NEXUS_DATABASE_URL", None)
if SERVER:
    NAME = f"nexus_tests_{os.environ.get('PYTEST_XDIST_WORKER', 'alone')}"
    os.environ["NEXUS_DATABASE_URL"] = url(NAME)

from nexus.core.database.store import store_of
from nexus_site.settings import *  # noqa: F403
from nexus_site.settings import NEXUS

# No test cuts the power, so a commit to a file need not wait for the disk.
DATABASES = {"default": store_of(NEXUS).django_settings(NEXUS.replaced(durability="full" if SERVER else "normal"))}
DATABASES["default"]["TEST"] = {"NAME": NAME if SERVER else NEXUS.database}
# Nor does anybody guess a password here: a hash that takes half a second protects nothing.
PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
# A file is found when it is asked for: every browser of a test would look for all of them first.
WHITENOISE_AUTOREFRESH = True
