"""Images as inputs, without torch: their headers, and the shapes that they are resized to."""
