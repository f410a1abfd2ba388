"""From the text of a function to machine code: assembled, optimised by LLVM, kept on disk."""
