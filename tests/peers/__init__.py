"""The frameworks' own test suites, run against the adapters on any store and with any version that an extra allows."""
