"""Output folders of msprof and torch_npu: a timeline and CSV files of one recording."""
