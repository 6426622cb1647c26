import django.db.models.deletion
from django.db import migrations, models

from nexus.core.database.steps import AlterReference


class Migration(migrations.Migration):
    """Events and their indexes hold the number of a workspace, not the 64 digits of its id."""

    dependencies = [("coordination", "0014_numbers_of_workspaces")]

    operations = [
        AlterReference(
            "event",
            "workspace",
            models.ForeignKey(
                db_index=False,
                null=True,
                on_delete=django.db.models.deletion.PROTECT,
                related_name="events",
                to="coordination.workspace",
                to_field="number",
            ),
        ),
    ]
