"""Where data come from: public sources, downloads, archives, and the cache."""
