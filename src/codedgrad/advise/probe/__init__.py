"""`codedgrad probe`: measure a cluster before it is planned for."""
