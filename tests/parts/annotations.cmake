samite_test(annotations base io)
samite_fuzz(labels base io)
samite_test(seams base io)
