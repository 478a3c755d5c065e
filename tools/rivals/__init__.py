"""What the acceptance rules of other projects let through: the gallery and cheats, judged by each rule."""
