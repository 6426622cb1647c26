from django.db import migrations, models

from nexus.core.database.migrations import AddColumn


class Migration(migrations.Migration):

    dependencies = [
        ('inbox', '0009_messages_by_number'),
    ]

    operations = [
        AddColumn(
            model_name='message',
            name='trace_id',
            field=models.CharField(max_length=255, null=True),
        ),
    ]
