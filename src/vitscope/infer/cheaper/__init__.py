"""The same answers for less: smaller numbers, other ways of launching, and what each of them costs and brings."""
