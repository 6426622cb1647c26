"""`nexus`, whose processes may have few files open."""

import resource

from nexus_site.launch import main

resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256))
main()
