"""What a model costs: parameters by part, multiply-adds, memory. Counted on the real network, without its memory."""
