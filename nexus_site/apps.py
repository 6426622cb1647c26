from django.apps import AppConfig


class NexusSiteConfig(AppConfig):
    name = "nexus_site"
