select era, opening, opening_floor, sealed_seq, trusted_seq from onceward.eras order by era
