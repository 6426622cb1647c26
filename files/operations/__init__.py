"""What this app offers."""
