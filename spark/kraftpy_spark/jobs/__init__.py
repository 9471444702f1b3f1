"""Jobs on Spark: topics into a lake of Parquet, and the audit of what got there."""
