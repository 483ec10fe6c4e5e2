"""Layers of straight pieces as the few operations that a network has: affine maps and ReLU.

Each function takes an assembly and operands as the foreign graph has them, so that the rules for torch and for ONNX
call one lowering. All are exact in real arithmetic: a number that is stored is never combined with another one here.
"""
