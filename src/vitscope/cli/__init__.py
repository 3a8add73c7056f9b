"""The command line: one small file per verb. Only the verb that is typed is imported."""
