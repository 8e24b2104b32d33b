"""Prompts for tests."""

from turnlog.core.history import build
from turnlog.core.prompt import assemble


def of_transcript(transcript, *, system="", inject="user", tools=()):
    return assemble(build(transcript, system=system, inject=inject), tools=tools)
