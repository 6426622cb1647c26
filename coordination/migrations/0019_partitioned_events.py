from django.db import migrations


def partition_new(apps, schema_editor):
    event = apps.get_model("coordination", "Event")
    if schema_editor.connection.vendor == "postgresql" and not event.objects.exists():
        from nexus.core.database.postgres.store import partition

        partition(event)


class Migration(migrations.Migration):
    """On PostgreSQL the log of a new database has partitions, which retention drops. A log with rows stays as it is."""

    dependencies = [("coordination", "0018_tags")]

    operations = [migrations.RunPython(partition_new, migrations.RunPython.noop)]
