"""The run folder: its layout, its writer, its readers, the metric names and the sample ledger."""
