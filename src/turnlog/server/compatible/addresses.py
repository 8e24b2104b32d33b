"""The paths of clients whose address lacks the `/v1`, or has it twice.

OpenAI's SDK wants it in its address, Anthropic's adds it, and AI SDK reads Anthropic's variable without adding it. A
wrong one shows in confusing ways: Claude Code then says that the model does not exist.
"""

PREFIX = "/v1/"
TWICE = "/v1/v1/"
BARE = ("/chat/completions", "/messages", "/responses", "/models")
"""Paths without the prefix; none of them is one of the page."""


def meant(path: str) -> str:
    """The path that the client means."""
    if path.startswith(TWICE):
        return PREFIX + path.removeprefix(TWICE)
    if any(path == bare or path.startswith(f"{bare}/") for bare in BARE):
        return PREFIX + path.removeprefix("/")
    return path
