"""How soon hangs of unmodified scripts are found, and that slow scripts are left alone."""
