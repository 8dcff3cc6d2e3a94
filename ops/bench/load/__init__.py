"""Load generators and fake servers."""
