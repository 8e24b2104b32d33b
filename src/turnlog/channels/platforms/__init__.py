"""One module for each platform that people talk on."""
