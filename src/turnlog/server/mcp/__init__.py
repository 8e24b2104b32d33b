"""Sessions for other programs' models, over the Model Context Protocol: found and read, and nothing else but pinned."""
