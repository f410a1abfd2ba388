"""Paging: a list of tasks on one GPU whose memory is smaller than their tensors.

All tensors lie in one arena. Which tensor lies where and when, and what is copied when, is decided
before anything runs; sizes are all that is needed for it.

| term | meaning |
| --- | --- |
| workload | tasks in a fixed order, and the tensors that they read and write |
| arena | the one allocation on the GPU in which all tensors lie |
| window | a tensor's place in the arena: an offset, and as many bytes as it has |
| resident | a tensor that stays in its window between runs and is never fetched in one |
| renewed | a resident in whose window a run keeps what the next one reads in its place |
| clean | the host or the disk has the same contents: to drop it costs nothing |
| staging | a ring of pinned blocks on the host through which tensors on disk go to the GPU |
| stream | a queue whose actions are carried out one by one: compute, to GPU, to host, disk |
| wait | an action of another stream that must have ended before this one begins |

`make.make_schedule` is the way in: it tries which tensors to keep, by what `schedule.simulate`
predicts. `place` gives windows, and `issue` turns them into actions that wait for each other.
"""
