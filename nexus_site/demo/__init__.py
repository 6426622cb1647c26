"""The demo: a small team of real MCP clients at work, and a summary of it."""
