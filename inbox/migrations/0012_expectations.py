from django.db import migrations, models

from nexus.core.database.migrations import AddColumn


class Migration(migrations.Migration):

    dependencies = [
        ('inbox', '0011_receipts'),
    ]

    operations = [
        AddColumn(
            model_name='message',
            name='expect',
            field=models.CharField(max_length=16, null=True),
        ),
        AddColumn(
            model_name='message',
            name='expect_by',
            field=models.DateTimeField(null=True),
        ),
        AddColumn(
            model_name='message',
            name='told_at',
            field=models.DateTimeField(null=True),
        ),
        migrations.AddIndex(
            model_name='message',
            index=models.Index(condition=models.Q(('expect_by__isnull', False)), fields=['expect_by'], name='messages_expected'),
        ),
    ]
