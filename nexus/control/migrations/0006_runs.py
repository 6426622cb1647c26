from django.db import migrations, models


class Migration(migrations.Migration):
    """A turn is a run: it says why it failed, what it retries, and whether it needs a person."""

    dependencies = [
        ('control', '0005_new_repositories'),
    ]

    operations = [
        migrations.AddField(
            model_name='turn',
            name='cause',
            field=models.CharField(choices=[('refused', 'Refused')], max_length=16, null=True),
        ),
        migrations.AddField(
            model_name='turn',
            name='needs_person_since',
            field=models.DateTimeField(null=True),
        ),
        migrations.AddField(
            model_name='turn',
            name='retry_of',
            field=models.CharField(max_length=255, null=True),
        ),
        migrations.AddIndex(
            model_name='turn',
            index=models.Index(condition=models.Q(('needs_person_since__isnull', False)), fields=['needs_person_since'], name='pool_turns_need'),
        ),
        migrations.AddIndex(
            model_name='turn',
            index=models.Index(condition=models.Q(('retry_of__isnull', False)), fields=['retry_of'], name='pool_turns_retries'),
        ),
    ]
