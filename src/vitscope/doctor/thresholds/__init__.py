"""Every number the doctor judges by, each with its reason, by stage. Checks have none of their own."""
