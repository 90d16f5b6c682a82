"""What the documentation shows is what happens."""
