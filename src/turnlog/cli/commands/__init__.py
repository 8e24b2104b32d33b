"""The commands of `turnlog`, one module each."""
