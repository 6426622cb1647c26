from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from nexus.core.apps import NexusAppConfig

if TYPE_CHECKING:
    from nexus.core.contributions import Page


class NexusSiteConfig(NexusAppConfig):
    name = "nexus_site"

    def pages(self) -> Sequence[Page]:
        from nexus_site.reference import PAGES  # its modules need the apps; `urls` is what collects the pages

        return PAGES
