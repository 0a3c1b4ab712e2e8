"""One device's worth of work: an inbox, an engine, an outbox."""
