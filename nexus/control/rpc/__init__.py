"""The pool over JSON-RPC: one request at a time on HTTP, and an agent live on server-sent events or a WebSocket.

It imports `agents` and `permissions`; operations are called by their names. Begin with `Endpoint` in `endpoint.py`;
`agent_stream.py` is the loop behind both streams.
"""
