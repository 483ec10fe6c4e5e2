"""Questions: images, labels, rivals, and the property that must hold."""
