"""`codedgrad who`: which workers are slow, how much, and since when."""
