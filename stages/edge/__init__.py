"""The edge: HTTP in, SSE out. Thin: it checks, publishes, and relays what the log says."""
