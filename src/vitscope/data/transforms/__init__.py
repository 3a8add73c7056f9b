"""How training pictures are varied: one at a time with torchvision, or a batch at a time on the device."""
