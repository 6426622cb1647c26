from django.db import migrations

INDEX = "CREATE INDEX events_by_age ON events USING brin (created_at) WITH (autosummarize = on)"


def index_by_age(apps, schema_editor):
    if schema_editor.connection.vendor == "postgresql":
        schema_editor.execute(INDEX)


def drop_index(apps, schema_editor):
    if schema_editor.connection.vendor == "postgresql":
        schema_editor.execute("DROP INDEX events_by_age")


class Migration(migrations.Migration):
    """Let retention on PostgreSQL see without a scan that all events of a partition are old. This index has a row for
    128 pages of the log, so that it costs a write nothing that can be measured."""

    dependencies = [("coordination", "0019_partitioned_events")]

    operations = [migrations.RunPython(index_by_age, drop_index)]
