"""What to simulate, in files and in words: scenarios, delays, networks."""
