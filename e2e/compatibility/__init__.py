"""Published clients against published servers with Rejoin in between (see ../README.md)."""
