"""Converts entries to lines of one file dialect and back. Pure: bytes in, entries out."""
