from django.db import migrations, models


class Migration(migrations.Migration):
    """Budgets, and runs that are out of one."""

    dependencies = [
        ('control', '0010_instruction_tokens'),
    ]

    operations = [
        migrations.AlterField(
            model_name='turn',
            name='cause',
            field=models.CharField(choices=[('refused', 'Refused'), ('stuck', 'Stuck'), ('out_of_budget', 'Out Of Budget')], max_length=16, null=True),
        ),
        migrations.CreateModel(
            name='Budget',
            fields=[
                ('budget_id', models.CharField(max_length=255, primary_key=True, serialize=False)),
                ('scope', models.CharField(choices=[('agent', 'Agent'), ('subtree', 'Subtree'), ('project', 'Project'), ('pool', 'Pool')], max_length=16)),
                ('name', models.CharField(blank=True, max_length=4096)),
                ('measure', models.CharField(choices=[('tokens', 'Tokens'), ('money', 'Money'), ('turns', 'Turns')], max_length=16)),
                ('period', models.CharField(choices=[('day', 'Day'), ('total', 'Total')], max_length=16)),
                ('allowed', models.PositiveBigIntegerField()),
                ('currency', models.CharField(max_length=3, null=True)),
                ('spent', models.PositiveBigIntegerField(default=0)),
                ('unknown', models.PositiveBigIntegerField(default=0)),
                ('day', models.DateField()),
                ('set_by', models.CharField(max_length=255)),
                ('set_at', models.DateTimeField()),
            ],
            options={
                'db_table': 'pool_budgets',
                'constraints': [models.CheckConstraint(condition=models.Q(('budget_id', ''), _negated=True), name='pool_budgets_budget_id_not_empty'), models.CheckConstraint(condition=models.Q(('set_by', ''), _negated=True), name='pool_budgets_set_by_not_empty'), models.CheckConstraint(condition=models.Q(('scope__in', ['agent', 'subtree', 'project', 'pool'])), name='pool_budgets_scope_known'), models.CheckConstraint(condition=models.Q(('measure__in', ['tokens', 'money', 'turns'])), name='pool_budgets_measure_known'), models.CheckConstraint(condition=models.Q(('period__in', ['day', 'total'])), name='pool_budgets_period_known')],
            },
        ),
    ]
