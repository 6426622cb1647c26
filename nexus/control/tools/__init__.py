"""What an agent of the pool does outside the store: files below its directory, programs, and Nexus's own operations."""
