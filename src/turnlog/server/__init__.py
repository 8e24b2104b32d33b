"""Turnlog over HTTP: JSON, server-sent events, and the page."""
