"""What a model makes of pictures before it names classes: taken, kept in files, judged, searched and drawn."""
