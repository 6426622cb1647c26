import django.db.models.deletion
from django.db import migrations, models


def free_the_operators_trail(apps, schema_editor):
    """What operators did belonged to a workspace that stood for the hub's home; now it belongs to none.

    Only this reference goes: id, type, payload and time of every event stay. The stand-in goes too, unless somebody
    made the home a project. The log admits it here alone: rebuilding the table above has dropped its triggers, which
    are made again after every migrate.
    """
    Event, Workspace = (apps.get_model("coordination", name) for name in ("Event", "Workspace"))
    # What everybody may see of this stream, a restore's note, was told to each workspace and stays there.
    trail = Event.objects.filter(stream="agent", visibility="private", workspace__isnull=False)
    homes = list(trail.order_by().values_list("workspace_id", flat=True).distinct())
    trail.update(workspace=None)
    for home in Workspace.objects.filter(pk__in=homes, last_seen_at=models.F("created_at")):
        if not _is_used(schema_editor.connection, home.pk):
            home.delete()


def _is_used(connection, workspace_id):
    """Whether a row of any table, of this app or a later one, refers to a workspace."""
    with connection.cursor() as cursor:
        for table in connection.introspection.table_names(cursor):
            for column, (_, target) in connection.introspection.get_relations(cursor, table).items():
                if target == "workspaces":
                    quoted = (connection.ops.quote_name(name) for name in (table, column))
                    cursor.execute("SELECT 1 FROM {} WHERE {} = %s LIMIT 1".format(*quoted), [workspace_id])
                    if cursor.fetchone():
                        return True
    return False


class Migration(migrations.Migration):
    """An event may belong to no workspace, and to a stream that any app declares."""

    dependencies = [("coordination", "0004_agent_toolsets")]

    operations = [
        migrations.RemoveConstraint(model_name="event", name="events_stream_known"),
        migrations.AlterField(
            model_name="event",
            name="stream",
            field=models.CharField(max_length=16),
        ),
        migrations.AlterField(
            model_name="event",
            name="workspace",
            field=models.ForeignKey(
                db_index=False,
                null=True,
                on_delete=django.db.models.deletion.PROTECT,
                related_name="events",
                to="coordination.workspace",
            ),
        ),
        migrations.RunPython(free_the_operators_trail, migrations.RunPython.noop),
    ]
