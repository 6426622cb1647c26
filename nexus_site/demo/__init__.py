"""The demo: a small team of real MCP clients at work, and the account of it."""
