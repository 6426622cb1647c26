from django.db import migrations, models


class Migration(migrations.Migration):
    """An outage is confirmed by a second agent. Those of before are met again if they are not over."""

    dependencies = [
        ('control', '0022_approved_merges'),
    ]

    operations = [
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
    ]
