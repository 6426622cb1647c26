"""The settings of the test suite: a home of its own, and a store in a file, because threads and processes share it."""

import os
import tempfile

os.environ["NEXUS_HOME"] = tempfile.mkdtemp(prefix="nexus-tests-")

from nexus_site.settings import *  # noqa: F403
from nexus_site.settings import DATABASES, NEXUS

DATABASES["default"]["TEST"] = {"NAME": NEXUS.database}
