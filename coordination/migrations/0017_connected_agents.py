from django.db import migrations, models


class Migration(migrations.Migration):
    """Agents know when a connection of theirs was last open."""

    dependencies = [("coordination", "0016_events_of_traces")]

    operations = [migrations.AddField("agent", "connected_at", models.DateTimeField(null=True))]
