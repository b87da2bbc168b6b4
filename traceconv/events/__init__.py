"""The batch types that readers yield."""
