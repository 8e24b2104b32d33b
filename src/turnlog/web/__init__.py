"""The page: templates, static files and its texts. Nothing is built; what is here is what is served."""
