"""An app that is in nobody's list: its folder, and the `nexus` command of an installation that has it."""

from __future__ import annotations

import subprocess
from pathlib import Path
from textwrap import dedent

from tests import warm
from tests.acceptance.hub import START_SECONDS
from tests.acceptance.processes import environment

FILES = {
    "toy/__init__.py": "",
    "toy/apps.py": """
        from nexus.core.apps import NexusAppConfig


        class ToyConfig(NexusAppConfig):
            name = "toy"
        """,
    "toy/maintenance.py": """
        from nexus.core.contributions import RetentionRule
        from toy.models import Toy

        RETENTION_RULES = [
            RetentionRule(
                "toys",
                lambda before: Toy.objects.filter(made_at__lt=before).order_by("pk"),
                "retention_toys_keep_days",
            )
        ]
        """,
    "toy/config.py": """
        from nexus.core.config import Settings, section, setting


        @section
        class ToySettings(Settings):
            toy_limit: int = setting(3, "How many toys a shelf holds.", minimum=1)
            retention_toys_keep_days: int = setting(2, "Toys older than this (days) may be pruned.", minimum=0)
        """,
    "toy/models.py": """
        from django.db import models


        class Toy(models.Model):
            name = models.TextField()
            made_at = models.DateTimeField()
        """,
    "toy/migrations/__init__.py": "",
    "toy/migrations/0001_initial.py": """
        from django.db import migrations, models


        class Migration(migrations.Migration):
            initial = True
            operations = [
                migrations.CreateModel(
                    "Toy",
                    [
                        ("id", models.BigAutoField(primary_key=True)),
                        ("name", models.TextField()),
                        ("made_at", models.DateTimeField()),
                    ],
                )
            ]
        """,
    "toy/operations.py": """
        from datetime import timedelta

        from nexus.core.clock import now
        from nexus.core.operations.errors import Code, NexusError
        from nexus.core.operations.parameters import Nothing, Params
        from nexus.core.operations.registry import Toolset
        from nexus.core.operations.replies import Reply
        from toy.config import ToySettings
        from toy.models import Toy


        def bare(outcome):
            return dict(outcome.data) if outcome.error is None else {"failed": outcome.error.code.value}


        TOYS = Toolset(
            "toy",
            "Toys on a shelf.",
            reply=Reply(bare, lambda outcome, body: f"The shelf says {sorted(body)}."),
            instructions=lambda: "Put your toys back.",
        )


        class ToyAdd(Params):
            name: str
            days_old: int = 0


        @TOYS.operation(ToyAdd, Code.INVALID_TRANSITION)
        def toy_add(p, caller):
            '''Put a toy on the shelf.'''
            if Toy.objects.count() >= ToySettings.current().toy_limit:
                raise NexusError(Code.INVALID_TRANSITION, "The shelf is full.")
            Toy.objects.create(name=p.name, made_at=now() - timedelta(days=p.days_old))
            return {"added": p.name, "by": caller.connection}


        @TOYS.operation(Nothing, read_only=True)
        def toy_list(p, caller):
            '''The toys on the shelf.'''
            return {"toys": list(Toy.objects.order_by("pk").values_list("name", flat=True))}
        """,
    "toy/api.py": """
        from django.urls import path

        from nexus.core.rest.viewsets import Endpoint
        from toy.operations import TOYS


        class Toys(Endpoint):
            toolset = TOYS

            def list(self, request):
                return self.operate("toy_list", {})

            def create(self, request):
                return self.operate("toy_add", self.body, success=201)


        routes = [path("toys", Toys.as_view({"get": "list", "post": "create"}))]
        """,
    "toy/urls.py": """
        from nexus.core.contributions import Page
        from toy.views import shelf

        PAGES = (Page("toy_shelf", "toys/", shelf, "Toy shelf", "toys"),)
        """,
    "toy/views.py": """
        from nexus.web.page import render
        from toy.models import Toy


        def shelf(request):
            return render(request, "toy/shelf.html", "Toy shelf", toys=Toy.objects.all())
        """,
    "toy/templates/toy/shelf.html": """
        {% extends "web/page.html" %}
        {% block page %}<ul>{% for toy in toys %}<li>{{ toy.name }}</li>{% endfor %}</ul>{% endblock %}
        """,
    "toy/management/__init__.py": "",
    "toy/management/commands/__init__.py": "",
    "toy/management/commands/toys.py": """
        from nexus.core.cli import OperatorCommand


        class Command(OperatorCommand):
            help = "List the toys."
            toolset = "toy"

            def act(self, options):
                self.print_table(["toy"], [[name] for name in self.call("toy_list")["toys"]])
                return 0
        """,
    "nexus_with_toy.py": """
        import sys

        from nexus_site import launch

        launch.APPS.append("toy")  # the one line
        launch.main(sys.argv)
        """,
}


def plant(folder: Path) -> Path:
    """Write the app into a folder; the `nexus` command that has it."""
    for name, text in FILES.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(dedent(text).lstrip())
    return folder / "nexus_with_toy.py"


def run(command: Path, home: Path, *arguments: str, **more: str) -> subprocess.CompletedProcess[str]:
    """Run a command of it to its end."""
    return warm.run(arguments, environment(home, **more), program=command, timeout=START_SECONDS)
