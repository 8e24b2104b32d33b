"""Code that runs next to the caller: loops that survive failures, and an event loop in a thread of its own."""
