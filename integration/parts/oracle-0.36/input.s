// Go compiles functions without a body, which input.go links, only beside an assembly file.
