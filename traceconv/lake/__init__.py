"""Lakes: folders of many runs as Parquet, local or on S3, which are read without an import.

The layout is TABLE/group=LABEL/run=KEY/*.parquet, with an entry _runs/KEY.json for each complete run: see
`entries` and docs/adr.
"""
