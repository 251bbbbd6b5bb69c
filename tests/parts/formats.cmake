samite_test(formats formats base)
samite_fuzz(torch_file formats base)
samite_fuzz(pickle formats base)
samite_fuzz(safetensors formats base)
