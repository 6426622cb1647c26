"""How an agent notices what waits for it, and how people and programs hear of it.

- The hook that a coding client calls: `entry` answers a call, `harness` has the clients' formats, `announcements` says
  each thing once, `quick_check` and `store_queries` read the store, `texts` words what the agent reads, `hook_state`
  keeps what was said, `problems` finds hooks that fail.
- What is written into clients' files: `client_entries`, `client_files`, and `client_commands`, which both commands use;
  for `nexus setup` also `setup_pieces` and `setup_record`.
- For programs: `signals`, `signal_files` and `webhooks` with its `sender`. For people: `notices`, `send_notice`.
"""
