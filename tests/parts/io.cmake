samite_test(io base io)
samite_test(io_mask base io)
samite_fuzz(image base io)
samite_fuzz(rle base io)
