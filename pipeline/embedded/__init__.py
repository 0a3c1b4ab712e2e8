"""A Kafka broker for one machine: Kafka's protocol over SQLite, durable, in one small process.

Knows nothing of the rest of Headrace. No replication and no transactions; whoever needs them
points the same clients at Apache Kafka.
"""
