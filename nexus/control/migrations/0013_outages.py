from django.db import migrations, models


class Migration(migrations.Migration):
    """A provider that is out is known, and a runner may have a fallback."""

    dependencies = [
        ('control', '0012_sessions'),
    ]

    operations = [
        migrations.AddField(
            model_name='turn',
            name='runner',
            field=models.CharField(max_length=255, null=True),
        ),
        migrations.CreateModel(
            name='Outage',
            fields=[
                ('runner', models.CharField(max_length=255, primary_key=True, serialize=False)),
                ('key', models.CharField(max_length=255)),
                ('fault', models.CharField(choices=[('overloaded', 'Overloaded'), ('failing', 'Failing'), ('unreachable', 'Unreachable'), ('quota', 'Quota'), ('key', 'Key')], max_length=16)),
                ('why', models.TextField()),
                ('failures', models.PositiveIntegerField()),
                ('since', models.DateTimeField()),
                ('until', models.DateTimeField(null=True)),
            ],
            options={
                'db_table': 'pool_outages',
                'constraints': [models.CheckConstraint(condition=models.Q(('runner', ''), _negated=True), name='pool_outages_runner_not_empty'), models.CheckConstraint(condition=models.Q(('key', ''), _negated=True), name='pool_outages_key_not_empty'), models.CheckConstraint(condition=models.Q(('fault__in', ['overloaded', 'failing', 'unreachable', 'quota', 'key'])), name='pool_outages_fault_known')],
            },
        ),
    ]
