"""The page: templates and static files, served as they are. Its texts are in `texts`."""
