from django.db import migrations, models

from nexus.core.database.migrations import AddColumn


class Migration(migrations.Migration):
    """Reservations name the agents that wait for them."""

    dependencies = [("files", "0003_refused_commits")]

    operations = [
        AddColumn("reservation", "waits", models.JSONField(db_default=models.Value([], models.JSONField()), default=list)),
    ]
