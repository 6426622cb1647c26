from django.db import migrations, models

from nexus.core.database.migrations import AddColumn


class Migration(migrations.Migration):

    dependencies = [
        ('coordination', '0017_connected_agents'),
    ]

    operations = [
        AddColumn(
            model_name='agent',
            name='tags',
            field=models.JSONField(null=True),
        ),
        migrations.CreateModel(
            name='Tag',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('key', models.CharField(max_length=255)),
                ('value', models.CharField(blank=True, default='', max_length=255)),
                ('description', models.TextField(null=True)),
                ('created_at', models.DateTimeField()),
            ],
            options={
                'db_table': 'tags',
                'constraints': [models.CheckConstraint(condition=models.Q(('key', ''), _negated=True), name='tags_key_not_empty'), models.UniqueConstraint(fields=('key', 'value'), name='tags_once')],
            },
        ),
    ]
