"""Sessions for other programs' models, over the Model Context Protocol: they can find, read and pin, nothing else."""
