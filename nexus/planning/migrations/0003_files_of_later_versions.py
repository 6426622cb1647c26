from django.db import migrations, models


class Migration(migrations.Migration):
    """Fields that a file of a later version has beside ours are kept, and written back."""

    dependencies = [("planning", "0002_tasks_by_status")]

    operations = [
        migrations.AddField(model, "extra", models.JSONField(null=True))
        for model in ("plan", "issue", "board", "task", "mirroredfile")
    ]
