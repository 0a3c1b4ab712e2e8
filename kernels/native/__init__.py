"""The engine's own CPU kernels: C++ without torch's headers, built at first use, called by ctypes.

One arithmetic for every number of rows, and for every instruction set that has fused
multiply-add: sums run in an order that neither the batch nor the vector width changes.
"""
