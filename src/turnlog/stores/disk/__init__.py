"""What the stores on disk need of the operating system: files, locks, fsync."""
