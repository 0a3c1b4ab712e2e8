"""Semantic ingress: from bytes that anybody published to a tokenised, budgeted request."""
