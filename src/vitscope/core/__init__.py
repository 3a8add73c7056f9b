"""Ground floor: configuration, registry, run folder, device, seed, errors. Knows no `torch.nn`."""
