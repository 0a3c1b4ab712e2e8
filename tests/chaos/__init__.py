"""Real processes, real brokers, real faults: nothing accepted is lost, nothing is said twice."""
