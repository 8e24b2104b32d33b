"""The pure part: no await, no clock, no randomness, no files, no logging."""
