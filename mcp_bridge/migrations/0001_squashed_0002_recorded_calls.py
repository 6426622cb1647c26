from django.db import migrations, models


class Migration(migrations.Migration):

    replaces = [('mcp_bridge', '0002_recorded_calls')]

    initial = True

    dependencies = [
    ]

    operations = [
        migrations.CreateModel(
            name='Task',
            fields=[
                ('task_id', models.CharField(max_length=64, primary_key=True, serialize=False)),
                ('agent_id', models.CharField(max_length=255, null=True)),
                ('toolset', models.CharField(max_length=255)),
                ('operation', models.CharField(max_length=255)),
                ('arguments', models.TextField()),
                ('answered', models.TextField()),
                ('status', models.CharField(choices=[('working', 'Working'), ('completed', 'Completed'), ('cancelled', 'Cancelled')], default='working', max_length=16)),
                ('result', models.TextField(null=True)),
                ('size', models.PositiveIntegerField(default=0)),
                ('created_at', models.DateTimeField()),
                ('updated_at', models.DateTimeField()),
                ('waits_until', models.DateTimeField()),
                ('expires_at', models.DateTimeField()),
            ],
            options={
                'db_table': 'mcp_tasks',
                'indexes': [models.Index(fields=['agent_id', 'status', 'updated_at'], name='mcp_tasks_by_agent'), models.Index(fields=['expires_at'], name='mcp_tasks_by_expiry')],
                'constraints': [models.CheckConstraint(condition=models.Q(('status__in', ['working', 'completed', 'cancelled'])), name='mcp_tasks_status_known'), models.CheckConstraint(condition=models.Q(models.Q(('result__isnull', False), ('status', 'completed')), models.Q(models.Q(('status', 'completed'), _negated=True), ('result__isnull', True)), _connector='OR'), name='mcp_tasks_result_iff_completed')],
            },
        ),
        migrations.CreateModel(
            name='RecordedCall',
            fields=[
                ('slot', models.CharField(max_length=64, primary_key=True, serialize=False)),
                ('key', models.CharField(max_length=64)),
                ('stage', models.PositiveSmallIntegerField()),
                ('answer', models.BinaryField(null=True)),
                ('recorded_at', models.DateTimeField()),
            ],
            options={
                'db_table': 'mcp_recorded_calls',
            },
        ),
    ]
