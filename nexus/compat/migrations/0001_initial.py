from django.db import migrations, models


class Migration(migrations.Migration):

    initial = True

    dependencies = [
    ]

    operations = [
        migrations.CreateModel(
            name='ImportedId',
            fields=[
                ('old_id', models.CharField(max_length=255, primary_key=True, serialize=False)),
                ('new_id', models.CharField(max_length=255)),
            ],
            options={
                'db_table': 'imported_ids',
            },
        ),
        migrations.CreateModel(
            name='ImportedStore',
            fields=[
                ('source', models.CharField(max_length=255, primary_key=True, serialize=False)),
                ('events_through', models.BigIntegerField(default=0)),
                ('imported_at', models.DateTimeField()),
            ],
            options={
                'db_table': 'imported_stores',
            },
        ),
    ]
