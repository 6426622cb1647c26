"""Tools of pool agents: files below their directory, programs, and Nexus's own operations."""
