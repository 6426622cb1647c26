from django.db import migrations


class Migration(migrations.Migration):

    dependencies = [
        ('forges', '0001_squashed_0005_push_failures'),
    ]

    operations = [
        migrations.DeleteModel(
            name='ForgeDelivery',
        ),
    ]
