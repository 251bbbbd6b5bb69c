samite_test(tokenizer base tokenizer)
samite_fuzz(tokenizer base tokenizer)
