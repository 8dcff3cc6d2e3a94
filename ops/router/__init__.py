"""Router in front of cells: configuration of nginx, generated."""
