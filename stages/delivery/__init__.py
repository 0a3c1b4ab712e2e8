"""Is the result right, and accounted for: one terminal outcome."""
