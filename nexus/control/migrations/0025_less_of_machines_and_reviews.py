from django.db import migrations


class Migration(migrations.Migration):
    dependencies = [
        ("control", "0024_merge_entries_one_by_one"),
    ]

    operations = [
        migrations.RemoveField(model_name="machine", name="draining"),
        migrations.RemoveField(model_name="poolagent", name="paused_at"),
        migrations.RemoveField(model_name="poolagent", name="paused_by"),
        migrations.RemoveField(model_name="poolworktree", name="taken_handoff"),
    ]
