"""Django's backend for PostgreSQL, with JSON kept as the text it was given."""
