"""The store in a folder of JSONL files, one per session."""
