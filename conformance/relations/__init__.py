"""What holds between several calls: bits, chance, memory, rounding."""
