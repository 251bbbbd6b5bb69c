samite_test(base base)
