#!/usr/bin/env python
"""The `nexus` command, from a checkout."""

from nexus_site.launch import main

if __name__ == "__main__":
    main()
