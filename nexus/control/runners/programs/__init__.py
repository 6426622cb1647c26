"""Small programs that a runner starts by their file name. They use only the standard library and import nothing of
Nexus."""
