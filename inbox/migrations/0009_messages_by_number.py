import django.db.models.deletion
from django.db import migrations, models

from nexus.core.database.steps import AlterReference


class Migration(migrations.Migration):
    """Messages and their index hold the number of a workspace, as events do."""

    dependencies = [("coordination", "0014_numbers_of_workspaces"), ("inbox", "0008_smaller_indexes_of_mail")]

    operations = [
        AlterReference(
            "message",
            "workspace",
            models.ForeignKey(
                db_index=False,
                on_delete=django.db.models.deletion.CASCADE,
                related_name="messages",
                to="coordination.workspace",
                to_field="number",
            ),
        ),
    ]
