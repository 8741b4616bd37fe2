"""From the table of cases to what people and programs read. Computes no statistic."""
