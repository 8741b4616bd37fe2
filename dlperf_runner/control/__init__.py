"""Plans campaigns, runs them round by round with bench.yml or as jobs, and follows them."""
