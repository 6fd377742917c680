"""The run folder: its layout, its writer, its readers. Standard library and file locks only."""
