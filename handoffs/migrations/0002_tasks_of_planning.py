from django.db import migrations, models
from django.db.models import Q


class Migration(migrations.Migration):
    """The tasks that handoffs carry are planning's; nothing ever wrote the former table."""

    dependencies = [("handoffs", "0001_initial")]
    run_before = [("coordination", "0006_tasks_go_to_planning")]

    operations = [
        migrations.RemoveField(model_name="handoff", name="task"),
        migrations.AddField(model_name="handoff", name="task_id", field=models.BigIntegerField(null=True)),
        migrations.AddField(model_name="handoff", name="task_key", field=models.CharField(max_length=255, null=True)),
        migrations.AddIndex(
            model_name="handoff",
            index=models.Index(fields=["task_key"], name="handoffs_by_task", condition=Q(task_key__isnull=False)),
        ),
    ]
