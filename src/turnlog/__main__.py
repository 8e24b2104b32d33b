"""`python -m turnlog` is `turnlog`."""

from .cli.main import main

main()
