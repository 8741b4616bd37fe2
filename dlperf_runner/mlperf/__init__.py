"""Results of MLPerf Training: rounds as MLCommons publishes them."""
