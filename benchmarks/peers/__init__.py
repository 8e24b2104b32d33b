"""The contestants: each does the same work through its own public interface and its own defaults."""
