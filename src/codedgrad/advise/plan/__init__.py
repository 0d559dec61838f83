"""`codedgrad plan`: which scheme for this cluster, or none."""
