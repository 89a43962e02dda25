"""Sources of data: public files, downloads, archives, and the cache."""
