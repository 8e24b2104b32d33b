"""Imports and exports files of other programs, and checks stores."""
