"""The tables of plans, tasks and cycles in `nexus export`."""

from __future__ import annotations

from django.apps import apps

from nexus.planning.maintenance import KINDS
from nexus.planning.models import MirroredFile


def test_every_table_is_history_but_what_a_machine_knows_of_its_own_files() -> None:
    kept = {kind.model for kind in KINDS}
    assert {model for model in apps.get_app_config("planning").get_models() if model not in kept} == {MirroredFile}
