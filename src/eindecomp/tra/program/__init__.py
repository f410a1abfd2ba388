"""The program of a plan: what its devices hold, compute and exchange, as symbols.

A program has *buffers* (a tensor in one layout over all devices) and *steps* that read and write
them. Nothing in it is listed device by device, so that it is as small for 1,024 devices as for 2;
what one device does, receives and sends is worked out on demand: `program.on(device)`.
"""
