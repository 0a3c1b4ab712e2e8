"""The floor: a log, and stages that stand on it. Knows nothing of language models."""
