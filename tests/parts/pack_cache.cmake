get_property(every_part GLOBAL PROPERTY SAMITE_PARTS)
string(REPLACE "part_" "" every_part "${every_part}")
samite_test(pack_cache ${every_part})
samite_fuzz(pack_cache ${every_part})
