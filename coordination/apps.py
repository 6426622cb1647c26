from django.apps import AppConfig
from django.utils.module_loading import autodiscover_modules

from coordination.access import redact_logs


class CoordinationConfig(AppConfig):
    name = "coordination"

    def ready(self) -> None:
        redact_logs()
        autodiscover_modules("operations", "operators")  # each module registers what its app offers
