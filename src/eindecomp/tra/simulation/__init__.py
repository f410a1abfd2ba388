"""The simulator: how long a program takes on a described machine, without running it.

It goes through the steps of a program once, in order, and keeps for every device when its kernels
and its links are free and when each of its buffers is ready. Every queue is served in program
order, so that no queue of events is needed: a step is worked out for all devices at once, as
arrays. `docs/simulation.md` states the model.

| term | meaning |
| --- | --- |
| level | neighbouring mesh axes whose links are alike; the outermost first |
| link | of a device on a level: one sends (injection), one receives (ejection) |
| phase | a part of a communication step in which devices wait for their peers once |
| peers | the devices that a device sends to or receives from in a phase |
"""
