"""What is said on the topics, and what it means together. Imports nothing of ours."""
