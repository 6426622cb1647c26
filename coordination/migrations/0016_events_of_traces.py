from django.db import migrations, models

from nexus.core.database.migrations import AddColumn


class Migration(migrations.Migration):

    dependencies = [
        ('coordination', '0015_events_by_number'),
    ]

    operations = [
        AddColumn(
            model_name='event',
            name='trace_id',
            field=models.CharField(max_length=255, null=True),
        ),
        migrations.AddIndex(
            model_name='event',
            index=models.Index(condition=models.Q(('trace_id__isnull', False)), fields=['trace_id'], name='events_of_trace'),
        ),
    ]
