from django.apps import AppConfig
from django.utils.module_loading import autodiscover_modules


class CoordinationConfig(AppConfig):
    name = "coordination"

    def ready(self) -> None:
        autodiscover_modules("operations")  # each module registers what its app offers
