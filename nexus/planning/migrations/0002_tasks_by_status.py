from django.db import migrations, models


class Migration(migrations.Migration):
    """The tasks in progress are found without those of closed cycles."""

    dependencies = [("planning", "0001_initial")]

    operations = [
        migrations.AddIndex(
            "task",
            models.Index(
                fields=["status", "task_key"], name="plan_tasks_by_status", condition=models.Q(closed_at=None)
            ),
        ),
    ]
