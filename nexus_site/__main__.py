"""`python -m nexus_site` is the `nexus` command."""

from nexus_site.launch import main

main()
