from django.apps import AppConfig


class HooksConfig(AppConfig):
    name = "hooks"

    def ready(self) -> None:
        from coordination.services.events import committed
        from hooks.signals import announce

        committed.connect(announce)
