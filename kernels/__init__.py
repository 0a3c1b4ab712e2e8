"""Tensors only: no Kafka, no requests, no text beyond the vocabulary."""
