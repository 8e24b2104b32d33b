"""Runs turns: the queue of each session, the runner, and what they write."""
