"""`headrace up`: the broker, the store and every role, each a process of its own."""
