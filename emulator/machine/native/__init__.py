"""The native engine: kernels as LLVM code, run by warps that hand it their state and answer its calls."""
