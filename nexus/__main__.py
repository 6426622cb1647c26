"""`python -m nexus` is the `nexus` command."""

from nexus_site.launch import main

main()
