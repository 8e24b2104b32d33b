"""Entry ⇄ line of one file dialect. Pure: bytes in, entries out."""
