"""What every request passes: limits, authentication, error answers, server-sent events."""
