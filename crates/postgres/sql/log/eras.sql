select e.era, e.opening, e.opening_floor, e.sealed_seq, e.trusted_seq from onceward.eras e order by e.era
