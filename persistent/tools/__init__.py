"""Tools over checkpoints: the command line, the page that shows jobs, and new projects. Nothing imports them."""
