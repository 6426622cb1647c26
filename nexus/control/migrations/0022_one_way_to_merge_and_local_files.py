from django.db import migrations, models


class Migration(migrations.Migration):
    """An outage is confirmed by a second agent; those of before are met again if they are not over."""

    dependencies = [
        ('control', '0001_squashed_0021_taken_over'),
    ]

    operations = [
        migrations.AddField(
            model_name='worktreemerge',
            name='approved',
            field=models.CharField(blank=True, max_length=64),
        ),
        migrations.AlterField(
            model_name='worktreemerge',
            name='cause',
            field=models.CharField(choices=[('conflict', 'Conflict'), ('checks', 'Checks'), ('changed', 'Changed'), ('refused', 'Refused')], max_length=16, null=True),
        ),
        migrations.AddField(
            model_name='poolagent',
            name='may_end_server',
            field=models.BooleanField(default=False),
        ),
        migrations.AddField(
            model_name='turn',
            name='awaited_until',
            field=models.DateTimeField(null=True),
        ),
        migrations.DeleteModel(name='Outage'),
        migrations.CreateModel(
            name='Outage',
            fields=[
                ('runner', models.CharField(max_length=255, primary_key=True, serialize=False)),
                ('key', models.CharField(max_length=255)),
                ('fault', models.CharField(choices=[('overloaded', 'Overloaded'), ('failing', 'Failing'), ('unreachable', 'Unreachable'), ('quota', 'Quota'), ('key', 'Key')], max_length=16)),
                ('why', models.TextField()),
                ('failures', models.PositiveIntegerField()),
                ('since', models.DateTimeField()),
                ('until', models.DateTimeField()),
                ('met_by', models.CharField(max_length=255)),
                ('is_confirmed', models.BooleanField(default=False)),
                ('reset_at', models.DateTimeField(null=True)),
            ],
            options={
                'db_table': 'pool_outages',
                'constraints': [models.CheckConstraint(condition=models.Q(('runner', ''), _negated=True), name='pool_outages_runner_not_empty'), models.CheckConstraint(condition=models.Q(('key', ''), _negated=True), name='pool_outages_key_not_empty'), models.CheckConstraint(condition=models.Q(('fault__in', ['overloaded', 'failing', 'unreachable', 'quota', 'key'])), name='pool_outages_fault_known')],
            },
        ),
        # Those that were checked with another entry wait for their turn.
        migrations.RunSQL("UPDATE pool_merges SET step = NULL WHERE state = 'waiting'", migrations.RunSQL.noop),
        migrations.RemoveField(
            model_name='worktreemerge',
            name='check_seconds',
        ),
        migrations.RemoveField(
            model_name='worktreemerge',
            name='checked_with',
        ),
        migrations.RemoveField(model_name="machine", name="draining"),
        migrations.RemoveField(model_name="poolagent", name="paused_at"),
        migrations.RemoveField(model_name="poolagent", name="paused_by"),
        migrations.RemoveField(model_name="poolworktree", name="taken_handoff"),
        migrations.RemoveField(
            model_name='poolagent',
            name='new_repositories',
        ),
        migrations.RemoveField(model_name='poolworktree', name='conflicted_at'),
        migrations.AddField(
            model_name='poolworktree',
            name='lacks',
            field=models.TextField(blank=True),
        ),
        migrations.AddField(
            model_name='poolworktree',
            name='local_files',
            field=models.JSONField(default=dict),
        ),
    ]
