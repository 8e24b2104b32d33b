"""Session types of agent frameworks that keep their sessions in a Turnlog store: one module for each framework."""
