from django.db import migrations

from nexus.core.database.keys import TextNumber


def number_them(apps, schema_editor):
    workspaces = apps.get_model("coordination", "Workspace").objects
    for workspace_id in workspaces.values_list("pk", flat=True):
        workspaces.filter(pk=workspace_id).update(number=workspace_id)


class Migration(migrations.Migration):
    """Each workspace has a number, by which the large tables name it."""

    dependencies = [("coordination", "0013_artifacts_in_order")]

    operations = [
        migrations.AddField("workspace", "number", TextNumber("workspace_id", null=True)),
        migrations.RunPython(number_them, migrations.RunPython.noop),
        migrations.AlterField("workspace", "number", TextNumber("workspace_id")),
    ]
