from django.db import migrations, models


class Migration(migrations.Migration):
    """A person who takes work over pauses its agent, and may give the work back."""

    dependencies = [("control", "0020_agents_of_hosts")]

    operations = [
        migrations.AddField("poolagent", "paused_at", models.DateTimeField(null=True)),
        migrations.AddField("poolagent", "paused_by", models.CharField(max_length=255, null=True)),
        migrations.AddField("poolworktree", "taken_handoff", models.CharField(max_length=255, null=True)),
    ]
