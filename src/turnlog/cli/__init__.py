"""The terminal: a chat, and commands that script well."""
