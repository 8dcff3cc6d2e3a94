"""What we compare with."""
