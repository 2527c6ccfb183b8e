"""Pictures and sums of single chapters: a notebook imports the module of its subject."""
